#!/usr/bin/env python3
"""Proves optima of planning problems with HiGHS: scripts/prove_optima.py FILE... [--budgets 90,75].

Solves the planner's relaxation (planner/relaxation.h) in whole numbers, and simulates the plan that
comes out. The relaxation admits every plan of its space, so its whole-number optimum is a lower
bound; where the simulated plan keeps the budget at that cost, it is the optimum. Where it does not
(the relaxation leaves out what the simulator counts), the best plan of `lowtide` stands against the
bound: the row then says how far apart they are.

Budgets are percent of the peak that keeps every save, or bytes. Rows go to stdout, or with --output
into a file, in the columns of optima.csv. highspy is a dependency of tests only.
"""

import argparse
import csv
import json
import pathlib
import subprocess
import sys

import highspy
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLUMNS = [
    "instance",
    "baseline_time_ns",
    "baseline_peak_bytes",
    "budget_bytes",
    "optimal_extra_time_ns",
    "proven_lower_bound_ns",
]


def tool(program, *arguments):
    """One call of planner_bench: its JSON."""
    command = [program, *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def as_program(model, level):
    """The relaxation as a mixed-integer program. Bytes of a moment are a variable that follows the
    one before it: a span then has two entries, not one for every moment it covers."""
    variables, moments = len(model["cost_ns"]), len(model["base_bytes"])
    # Counted in 1/1024 of the level: solvers want numbers of one size.
    unit = max(level / 1024, 1.0)
    starts, index, value, lower, upper = [0], [], [], [], []

    def row(terms, low, high):
        for column, factor in terms.items():
            index.append(column)
            value.append(factor)
        starts.append(len(index))
        lower.append(low)
        upper.append(high)

    for terms, least in zip(model["rows"], model["least"]):
        summed = {}
        for column, factor in terms:
            summed[column] = summed.get(column, 0) + factor
        row(summed, least, highspy.kHighsInf)
    changes = [{} for _ in range(moments + 1)]
    for variable, begin, end, size in model["spans"]:
        for moment, sign in ((begin, 1), (end, -1)):
            change = changes[moment]
            change[variable] = change.get(variable, 0) + sign * size / unit
    for moment in range(moments):
        terms = {column: -size for column, size in changes[moment].items() if size}
        terms[variables + moment] = 1
        if moment:
            terms[variables + moment - 1] = -1
        row(terms, 0, 0)

    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = variables + moments, len(lower)
    # The offset belongs to the objective: HiGHS's relative gap counts it.
    program.offset_ = model["base_ns"]
    program.col_cost_ = np.array(model["cost_ns"] + [0] * moments, dtype=float)
    program.col_lower_ = np.array([0.0] * variables + [-highspy.kHighsInf] * moments)
    room = [(level - base) / unit for base in model["base_bytes"]]
    program.col_upper_ = np.array(model["limit"] + room, dtype=float)
    program.row_lower_ = np.array(lower, dtype=float)
    program.row_upper_ = np.array(upper, dtype=float)
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_ = np.array(starts, dtype=np.int32)
    program.a_matrix_.index_ = np.array(index, dtype=np.int32)
    program.a_matrix_.value_ = np.array(value, dtype=float)
    whole, real = highspy.HighsVarType.kInteger, highspy.HighsVarType.kContinuous
    program.integrality_ = [whole] * variables + [real] * moments
    return program


def solve(model, level, seconds):
    """(lower bound in ns, decisions of the plan found or None)."""
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("time_limit", float(seconds))
    solver.setOptionValue("mip_rel_gap", 1e-6)
    solver.passModel(as_program(model, level))
    solver.run()
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return None, None
    info = solver.getInfo()
    # Tolerances of the solver (1e-6 of a variable) stay below a millionth of the cost.
    bound = int(np.floor(info.mip_dual_bound - 1e-6 * abs(info.mip_dual_bound)))
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return bound, None
    values = solver.getSolution().col_value
    decisions = []
    for storage, dropped, freed in model["choices"]:
        if values[dropped] > 0.5:
            decisions.append(
                f"{storage}:freed" if freed >= 0 and values[freed] > 0.5 else f"{storage}"
            )
    return bound, decisions


def prove(program, path, space, budget, model, seconds, strategy):
    """(best extra time known, lower bound): equal to the solver's tolerance where proven."""
    bound, decisions = solve(model, budget, seconds)
    best = None
    if decisions is not None:
        plan = tool(program, "simulate", path, *decisions)
        if plan["peak_bytes"] <= budget:
            best = plan["extra_ns"]
    if bound is not None and (best is None or best - bound > max(1, 2e-6 * abs(best))):
        (found,) = tool(program, "frontier", path, strategy.format(budget), budget)["budgets"]
        if found and (best is None or found["extra_ns"] < best):
            best = found["extra_ns"]
    if best is not None and bound is not None:
        tolerance = max(1, 2e-6 * abs(best))
        if bound > best + tolerance:
            raise RuntimeError(f"{path}: the bound {bound} is above a plan of {best} ns")
        if best - bound <= tolerance:
            bound = best
    return best, bound


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=pathlib.Path, help="traces or instances")
    parser.add_argument("--budgets", default="90,75,60,50,40", help="percent, or bytes")
    parser.add_argument("--space", choices=["single", "general"], default="single")
    parser.add_argument("--width", type=int, default=1000, help="slots told apart per op")
    parser.add_argument("--seconds", type=float, default=120, help="for one budget")
    parser.add_argument("--strategy", default="lowtide:single+peak={}", help="where no proof comes")
    parser.add_argument("--program", default=ROOT / "build" / "release" / "bin" / "planner_bench")
    parser.add_argument("--output", type=pathlib.Path)
    options = parser.parse_args()

    output = open(options.output, "w", newline="") if options.output else sys.stdout
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(COLUMNS)
    proven = total = 0
    for path in options.files:
        plain = tool(options.program, "simulate", path)
        model = tool(options.program, "model", path, options.space, options.width)
        for text in options.budgets.split(","):
            number = int(text)
            budget = number if number > 100 else plain["peak_bytes"] * number // 100
            best, bound = prove(
                options.program,
                path,
                options.space,
                budget,
                model,
                options.seconds,
                options.strategy,
            )
            total += 1
            if best is None:
                print(f"{path.stem} {text}: no plan (bound {bound})", file=sys.stderr)
                continue
            proven += best == bound
            gap = (best - bound) / max(abs(best), 1)
            print(f"{path.stem} {text}: {best} ns, bound {bound} ({gap:.3%})", file=sys.stderr)
            name = path.name.split(".")[0]
            writer.writerow([name, plain["step_ns"], plain["peak_bytes"], budget, best, bound])
            output.flush()
    print(f"{proven} of {total} proven optimal", file=sys.stderr)
    return 0 if proven == total else 1


if __name__ == "__main__":
    sys.exit(main())

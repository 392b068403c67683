#!/usr/bin/env python3
"""What measured op times are worth against FLOPs: the same strategy plans with both.

Each demo program records a trace. `lowtide` plans it twice: with the measured times, and with times
in proportion to the FLOPs of each op (an op without any costs one FLOP, as in torch's memory budget
API). The independent checker then judges every plan by the measured times. At each of twelve
budgets both answers have to hold the budget; the table shows what each really costs.
Other traces: --trace FILE (repeatable). --strategy NAME: which one plans. --quick: fewer budgets.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import demolib
from benchlib import Bench, format_bytes

PROGRAMS = ("train_gpt", "train_resnet", "train_lstm")


def lowtide(*arguments, expect=(0,)):
    command = [demolib.program("lowtide"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in expect:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


def record(program, folder):
    """A trace of the program, made without a budget."""
    demolib.train("--budget", "none", "--directory", folder, "--steps", 8, name=program)
    (trace,) = folder.glob("*.trace.json")
    return trace


def priced_by_flops(source, target):
    """The same trace with FLOPs for times; False where it has none."""
    trace = json.loads(source.read_text(encoding="utf-8"))
    if not any(op.get("flops", 0) for op in trace["ops"]):
        return False
    for op in trace["ops"]:
        op["host_ns"], op["device_ns"] = max(op.get("flops", 0), 1), 0
        op["replay_ns"] = 0  # the price of a recomputation is that of the op
    target.write_text(json.dumps(trace), encoding="utf-8")
    return True


def extra_ns(measured, priced, budget, strategies, plan):
    """Measured extra time of the plan made from `priced`; None where the budget cannot be met."""
    arguments = ["plan", priced, "--budget", budget, "--strategies", strategies, "-o", plan]
    if not lowtide(*arguments, expect=(0, 3)):
        return None
    # The plan's own prediction is in FLOPs: the checker says so and gives the time it finds.
    verdict = json.loads(lowtide("check", measured, plan, "--json", expect=(0, 1)))
    if verdict["verdict"] not in ("ok", "wrong time"):
        raise RuntimeError(f"{plan}: {verdict['verdict']}: {verdict['detail']}")
    return verdict["recompute_ns"]


def compare(bench, name, measured, folder, options):
    """Ratios (FLOP plan to measured plan) at the budgets of one trace."""
    priced = folder / f"{name}.flops.json"
    if not priced_by_flops(measured, priced):
        bench.require(f"{name}: the trace has FLOPs", "none", "some", False)
        return []
    frontier = json.loads(
        lowtide("frontier", measured, "--strategies", options.strategies, "--json")
    )
    budgets = [point["budget_bytes"] for point in frontier["points"]]
    step_ns, top, bottom = frontier["step_ns"], budgets[0], budgets[-1]
    count = 5 if options.quick else 12
    rows, ratios = [], []
    for i in range(1, count + 1):
        budget = top - (top - bottom) * i // count
        mine, theirs = (
            extra_ns(measured, source, budget, options.strategies, folder / "x.plan.json")
            for source in (measured, priced)
        )
        if mine is None or theirs is None:
            rows.append([format_bytes(budget), "-" if mine is None else mine, "no plan", "-"])
            continue
        ratio = theirs / mine if mine else 1.0
        ratios.append(ratio)
        shares = [f"{100 * ns / step_ns:.2f} %" for ns in (mine, theirs)]
        rows.append([format_bytes(budget), *shares, f"{ratio:.3f}"])
    print(f"\n{name}: extra time by measured times, of plans made with")
    bench.table(["budget", "measured times", "FLOPs", "FLOPs / measured"], rows)
    return ratios


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--strategy", default="lowtide")
    parser.add_argument("--trace", type=pathlib.Path, action="append", default=[])
    options = parser.parse_args()
    options.strategies = f"keep_all,{options.strategy}"

    bench = Bench("costs", quick=options.quick)
    ratios = []
    with tempfile.TemporaryDirectory(prefix="lowtide-costs-") as scratch:
        folder = pathlib.Path(scratch)
        for program in PROGRAMS:
            if options.trace:
                break
            own = folder / program
            own.mkdir()
            ratios += compare(bench, program, record(program, own), folder, options)
        for trace in options.trace:
            ratios += compare(bench, trace.name, trace, folder, options)
    if ratios:
        worst, best = min(ratios), max(ratios)
        bench.require(
            "measured times never worse than FLOPs", f"{worst:.3f}", ">= 0.995", worst >= 0.995
        )
        bench.require(
            "measured times >= 5 % better somewhere", f"{best:.3f}", ">= 1.05", best >= 1.05
        )
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())

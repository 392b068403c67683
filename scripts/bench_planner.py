#!/usr/bin/env python3
"""The planner against proven optima: how near, how fast, how low, and are its promises kept?

Instances and optima: ../shared/data/planner beside the repository (six models traced by
torch.compile), and the small ones of tests/data/planner. Where the first are missing the bench says
so and judges by the second. Planning is timed in CPU seconds of one thread; the machine's own speed
(a fixed loop) is printed beside it. --quick: fewer models, fewer random budgets, no growth to 96
layers.
"""

import argparse
import csv
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from benchlib import ROOT, Bench, format_bytes

SHARED = ROOT.parent / "shared" / "data" / "planner"
OWN = ROOT / "tests" / "data" / "planner"
PROGRAM = ROOT / "build" / "release" / "bin" / "planner_bench"
# Lowest peaks known, in bytes, where each value is recomputed once: found by annealing and MILP.
# For gpt12 one that no plan reaches, as HiGHS proves: prove_optima.py --budgets 1660000000.
LOWEST_KNOWN = {
    "gpt12": 1_660_000_000,
    "llama12": 2_182_000_000,
    "vit_b": 626_000_000,
    "unet": 1_124_000_000,
    "resnet50": 1_592_000_000,
}
OTHERS = ("greedy", "beam", "knapsack")


def tool(*arguments):
    command = [PROGRAM, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout)


def known_strategies():
    """Names that this build's planner has."""
    try:
        tool("frontier", next(OWN.glob("*.json")), "?")
    except RuntimeError as error:
        return str(error)
    raise AssertionError("unreachable")


class Case:
    """One model with its proven rows, by rising budget."""

    def __init__(self, path, rows):
        self.path, self.name = path, path.name.split(".")[0]
        self.rows = sorted(rows, key=lambda row: row["budget_bytes"])
        self.budgets = [row["budget_bytes"] for row in self.rows]
        self.optima = [row["optimal_extra_time_ns"] for row in self.rows]

    def extra(self, strategy):
        """Extra time at each budget, None where it finds no plan; and the whole answer."""
        answer = tool("frontier", self.path, strategy, *self.budgets)
        found = [point and point["extra_ns"] for point in answer["budgets"]]
        return found, answer


def read_cases(folder, names=None):
    with open(folder / "optima.csv", encoding="utf-8") as file:
        rows = [
            {key: value if key == "instance" else int(value) for key, value in row.items()}
            for row in csv.DictReader(file)
        ]
    cases = []
    for name in dict.fromkeys(row["instance"] for row in rows):
        if names is not None and name not in names:
            continue
        (path,) = [
            p for p in folder.iterdir() if p.suffix == ".json" and p.name.split(".")[0] == name
        ]
        cases.append(Case(path, [row for row in rows if row["instance"] == name]))
    return cases


def gap_text(extra, optimum):
    if extra is None:
        return "none"
    return f"{extra / optimum - 1:+.2%}" if optimum > 0 else f"{extra} ns"


def judge_optima(bench, cases, strategies):
    """Must: near the optimum in the space of one recomputation, and every bound below it."""
    rows, gaps, above, loose = [], [], 0, []
    for case in cases:
        mine, _ = case.extra("keep_all,lowtide:single")
        others = {name: case.extra(f"keep_all,{name}")[0] for name in strategies}
        bounds = tool("bound", case.path, "single", *case.budgets)
        general = tool("bound", case.path, "general", *case.budgets)
        for i, row in enumerate(case.rows):
            optimum = case.optima[i]
            if mine[i] is not None and optimum > 0:
                gaps.append(mine[i] / optimum - 1)
            elif mine[i] != optimum:
                gaps.append(math.inf)
            lower = bounds[i]["lower_bound_ns"]
            above += (lower > optimum) + (general[i]["lower_bound_ns"] > optimum)
            if optimum > 0:
                loose.append(1 - lower / optimum)
            rows.append(
                [
                    f"{case.name} {case.budgets[i] / row['baseline_peak_bytes']:.0%}",
                    optimum // 1000,
                    gap_text(mine[i], optimum),
                    *(gap_text(others[name][i], optimum) for name in strategies),
                    gap_text(lower, optimum),
                    f"{bounds[i]['cpu_seconds']:.2f}",
                ]
            )
    bench.table(
        ["model, budget", "optimum us", "lowtide:single", *strategies, "bound", "bound CPU s"],
        rows,
        title="Extra time against the proven optimum (each value recomputed once)",
    )
    mean, worst = statistics.mean(gaps), max(gaps)
    bench.require("gap to the proven optimum, mean", f"{mean:.3%}", "<= 0.3 %", mean <= 0.003)
    bench.require("gap to the proven optimum, worst", f"{worst:.3%}", "<= 1 %", worst <= 0.01)
    below = min(gaps)
    # A solver proves to a tolerance; what is clearly below was not in the space.
    bench.require("no plan below its proven optimum", f"{below:.3%}", ">= -0.1 %", below >= -0.001)
    bench.require("stated bounds above the optimum", above, "0", above == 0)
    bench.say(f"bound below the optimum: mean {statistics.mean(loose):.2%}, worst {max(loose):.2%}")
    bench.figure("bound_mean_gap", statistics.mean(loose))


def show_duplicates(bench, cases):
    """The same budgets where a value may be freed after each use and recomputed again."""
    rows = []
    for case in cases:
        once, single = case.extra("keep_all,lowtide:single")
        again, general = case.extra("keep_all,lowtide")
        for i, budget in enumerate(case.budgets):
            rows.append(
                [
                    f"{case.name} {budget / case.rows[i]['baseline_peak_bytes']:.0%}",
                    "none" if once[i] is None else once[i] // 1000,
                    "none" if again[i] is None else again[i] // 1000,
                    gap_text(again[i], once[i]) if once[i] else "",
                ]
            )
        low = [answer["smallest_peak_bytes"] for answer in (single, general)]
        rows.append(
            [f"{case.name} lowest peak", *map(format_bytes, low), f"{low[1] / low[0] - 1:+.2%}"]
        )
    bench.table(
        ["model, budget", "once, us", "duplicates, us", "difference"],
        rows,
        title="With duplicates on",
    )


def machine_speed():
    """CPU seconds of a fixed loop: what the other seconds are to be read against."""
    start = time.process_time()
    total = 0
    for i in range(5_000_000):
        total += i & 7
    return time.process_time() - start


def judge_time(bench, folder, quick):
    """Must: one budget and a whole frontier in seconds; growth with depth below power 3/2."""
    limits = {"gpt12": (0.5, 3), "llama12": (0.5, 3), "gpt48": (3, 30)}
    rows = []
    for name, (one_limit, all_limit) in limits.items():
        if quick and name == "llama12":
            continue
        path = folder / f"{name}.json"
        plain = tool("simulate", path)
        budget = plain["peak_bytes"] * 6 // 10
        one = tool("frontier", path, f"keep_all,lowtide:peak={budget}", budget)
        whole = tool("frontier", path, "keep_all,lowtide")
        (bound,) = tool("bound", path, "single", budget)
        rows.append(
            [
                name,
                whole["ops"],
                whole["saves"],
                f"{one['cpu_seconds']:.2f}",
                f"{whole['cpu_seconds']:.2f}",
                whole["points"],
                f"{bound['cpu_seconds']:.2f}",
            ]
        )
        bench.require(
            f"{name}: one budget", f"{one['cpu_seconds']:.2f} CPU s", f"<= {one_limit} s",
            one["cpu_seconds"] <= one_limit,
        )  # fmt: skip
        bench.require(
            f"{name}: whole frontier", f"{whole['cpu_seconds']:.2f} CPU s", f"<= {all_limit} s",
            whole["cpu_seconds"] <= all_limit,
        )  # fmt: skip
        bench.require(f"{name}: points", whole["points"], ">= 64", whole["points"] >= 64)
    bench.table(
        ["model", "ops", "saves", "one budget, s", "frontier, s", "points", "bound, s"],
        rows,
        title=f"CPU seconds, one thread (fixed loop on this machine: {machine_speed():.2f} s)",
    )


def judge_growth(bench, quick):
    layers, seconds, rows = (12, 48) if quick else (12, 48, 96), [], []
    with tempfile.TemporaryDirectory(prefix="lowtide-planner-") as folder:
        for count in layers:
            path = pathlib.Path(folder) / f"gpt{count}.trace.json"
            tool("gpt", count, path)
            plain = tool("simulate", path)
            budget = plain["peak_bytes"] * 6 // 10
            one = tool("frontier", path, f"keep_all,lowtide:peak={budget}", budget)
            seconds.append(one["cpu_seconds"])
            rows.append([f"{count} layers", one["ops"], one["saves"], f"{seconds[-1]:.2f}"])
    bench.table(["synthetic GPT", "ops", "saves", "one budget, s"], rows, title="Growth with depth")
    exponent = math.log(seconds[-1] / seconds[0]) / math.log(layers[-1] / layers[0])
    bench.require(
        f"growth {' -> '.join(map(str, layers))} layers, exponent",
        f"{exponent:.2f}",
        "<= 1.5",
        exponent <= 1.5,
    )


def judge_promises(bench, paths, count):
    """Must: nothing over its budget, nothing out of order, nothing the checker refuses."""
    keys = ("over", "peak_violations", "time_violations", "check_failures", "refused_wrongly")
    sums, rows = dict.fromkeys(keys, 0), []
    for path in paths:
        answer = tool("random", path, "keep_all,lowtide", count)
        for key in keys:
            sums[key] += answer[key]
        rows.append(
            [path.name.split(".")[0], answer["planned"], answer["distinct_plans"]]
            + [answer[key] for key in keys]
        )
    headers = ["model", "planned", "plans", "over", "peak order", "time order", "check", "refused"]
    bench.table(headers, rows, title=f"{count} random budgets each")
    what = {
        "over": "plans over their budget",
        "peak_violations": "smaller budgets with a higher peak",
        "time_violations": "larger budgets with a slower plan",
        "check_failures": "plans refused by the checker",
        "refused_wrongly": "reachable budgets refused",
    }
    for key, text in what.items():
        bench.require(text, f"{sums[key]} of {count * len(rows)}", "0", sums[key] == 0)


def judge_lowest(bench, folder):
    rows, worst = [], -math.inf
    for name, known in LOWEST_KNOWN.items():
        low = tool("frontier", folder / f"{name}.json", "keep_all,lowtide:single")
        greedy = tool("frontier", folder / f"{name}.json", "keep_all,greedy")
        share = low["smallest_peak_bytes"] / known - 1
        worst = max(worst, share)
        rows.append(
            [
                name,
                format_bytes(known),
                format_bytes(low["smallest_peak_bytes"]),
                f"{share:+.2%}",
                format_bytes(greedy["smallest_peak_bytes"]),
            ]
        )
    bench.table(
        ["model", "best known", "lowtide:single", "difference", "greedy"],
        rows,
        title="Lowest reachable peak",
    )
    bench.require(
        "lowest peak above the best known, worst", f"{worst:+.2%}", "<= 1 %", worst <= 0.01
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    bench = Bench("planner", quick=options.quick)
    known = known_strategies()
    others = [name for name in OTHERS if name in known]

    cases = read_cases(OWN)
    shared = SHARED.exists()
    if shared:
        cases = read_cases(SHARED, {"gpt12", "unet"} if options.quick else None) + cases
    else:
        bench.say(f"{SHARED} is not there: judged by the instances of tests/data/planner alone")
    judge_optima(bench, cases, others)
    show_duplicates(bench, cases)
    if shared:
        judge_time(bench, SHARED, options.quick)
        judge_lowest(bench, SHARED)
    judge_growth(bench, options.quick)
    paths = [case.path for case in cases]
    if shared and not options.quick:
        paths.append(SHARED / "gpt48.json")
    judge_promises(bench, paths, 100 if options.quick else 1000)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())

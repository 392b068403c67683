#!/usr/bin/env python3
"""Under the budget from step 1, and with shapes that change: what training without a plan can do.

First part: reserved memory limited to a share of what the plain program reserves, from the very
first step, with no stored trace; the lowest limit that works is found by bisection. Second part:
sequence lengths drawn anew for every step, a short last batch and evaluations in between, at half
the peak of the longest. --quick: fewer limits, pairs and steps.
"""

import argparse
import random
import statistics
import sys
import tempfile

import demolib
from benchlib import Bench, format_bytes

STEPS = 12
FIRST = 2  # steps whose time the table gives: warm-up, before any plan


def budgeted(budget, *arguments, expect=(0,)):
    """A run that finds no stored trace."""
    with tempfile.TemporaryDirectory(prefix="lowtide-pressure-") as folder:
        return demolib.train("--budget", budget, "--directory", folder, *arguments, expect=expect)


def works(budget, reference, arguments):
    run = budgeted(budget, *arguments, expect=(0, 3))
    return (run.code == 0 and run.peak() <= budget and not demolib.differences(run, reference)), run


def lowest_limit(peak, reference, arguments, known_good, known_bad, resolution):
    """Bisection between a share that works and one that does not, to `resolution`."""
    while known_good - known_bad > resolution:
        middle = (known_good + known_bad) / 2
        fine, _ = works(round(peak * middle), reference, arguments)
        known_good, known_bad = (middle, known_bad) if fine else (known_good, middle)
    return known_good


def first_steps_ratio(budget, rounds):
    """CPU time of the first steps against plain ones, fresh processes in turn."""
    samples = {"plain": [], "budget": []}
    order = random.Random(1)
    for _ in range(rounds):
        names = list(samples)
        order.shuffle(names)
        for name in names:
            arguments = ("--steps", FIRST)
            run = (
                budgeted(budget, *arguments)
                if name == "budget"
                else demolib.train("--no-lowtide", "--limit", demolib.NO_LIMIT, *arguments)
            )
            samples[name].append(sum(step["cpu_ns"] for step in run.steps))
    return statistics.median(
        mine / plain for mine, plain in zip(samples["budget"], samples["plain"])
    )


def judge_limits(bench, quick):
    arguments = ("--steps", STEPS, "--grad-digest")
    plain = demolib.train("--no-lowtide", "--limit", demolib.NO_LIMIT, *arguments)
    peak = plain.peak()
    rows = []
    for share in (0.8, 0.6, 0.4):
        budget = round(peak * share)
        fine, run = works(budget, plain, arguments)
        limited = demolib.train("--no-lowtide", "--limit", budget, *arguments, expect=(0, 3))
        if share == 0.4:
            bench.require(
                "40 % of the plain peak, from step 1: runs, never crosses, bit-identical",
                f"exit {run.code}, peak {format_bytes(run.peak())}, "
                f"{demolib.differences(run, plain) if run.code == 0 else run.errors}",
                f"exit 0, <= {format_bytes(budget)}, no difference",
                fine,
            )
            bench.require(
                "the plain program under the same limit",
                f"exit {limited.code}",
                "exit 3",
                limited.code == 3,
            )
        ratio = first_steps_ratio(budget, 3 if quick else 9) if run.code == 0 else None
        first = run.steps[:FIRST]
        rows.append(
            [
                f"{share:.0%}",
                format_bytes(budget),
                format_bytes(run.peak()),
                sum(step["session"]["replayed_ops"] for step in first),
                sum(step["session"]["evictions"] for step in first),
                f"{ratio:.2f}" if ratio else "-",
                f"exit {limited.code}",
            ]
        )
    bench.table(
        [
            "share",
            "limit",
            "peak",
            f"replayed ops, steps 1-{FIRST}",
            "evictions",
            "CPU time / plain",
            "plain program",
        ],
        rows,
        f"From step 1, plain reserved peak {format_bytes(peak)}",
    )
    if rows[-1][5] != "-":
        lowest = lowest_limit(peak, plain, arguments, 0.4, 0.1, 0.04 if quick else 0.01)
        bench.say(
            f"lowest limit that works: {lowest:.0%} of the plain peak "
            f"({format_bytes(round(peak * lowest))})"
        )
        bench.figure("lowest_limit_share", lowest)


def judge_lengths(bench, quick):
    steps = 40 if quick else 200
    arguments = ("--steps", steps, "--lengths", "32:256", "--eval-every", 10, "--grad-digest")
    longest = demolib.train(
        "--no-lowtide", "--limit", demolib.NO_LIMIT, "--steps", 3, "--context", 256
    )
    budget = round(longest.peak() * 0.5)
    plain = demolib.train("--no-lowtide", *arguments)
    run = budgeted(budget, *arguments)
    over = sum(step["peak_reserved_bytes"] > budget for step in run.steps)
    bench.require(
        f"{steps} steps of 32 to 256 characters: steps over the budget of {format_bytes(budget)}",
        over,
        "0",
        over == 0,
    )
    different = demolib.differences(run, plain)
    bench.require(
        "losses, evaluations and end state bit-identical",
        different or "equal",
        "equal",
        not different,
    )
    session = run["session"]
    bench.table(
        ["steps", "divergences", "evictions", "evicted", "variants", "replayed ops", "peak"],
        [
            [
                steps,
                session["divergences"],
                session["evictions"],
                format_bytes(session["evicted_bytes"]),
                session["variants"],
                session["replayed_ops"],
                format_bytes(run.peak()),
            ]
        ],
        "Varying lengths",
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    bench = Bench("pressure", quick=options.quick)
    judge_limits(bench, options.quick)
    judge_lengths(bench, options.quick)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())

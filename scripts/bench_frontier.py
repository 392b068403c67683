#!/usr/bin/env python3
"""Twelve budgets from keep-all to the smallest reachable: each kept, exact, monotonic, predicted?

One process makes the trace; one process per budget then trains from the stored trace, and is
compared bit for bit with plain training of the same steps. Peaks are judged by the program's own
counters, which share no code with the product. Step times come from further processes that take
their steps in turn with two plain ones (the second is the A/A arm). These run on the product's
allocator, without a limit, so that the difference is what enforcing a plan costs and not one
allocator against another; a third one on torch's own stands beside them, and one that runs the
plan of strategy `greedy` for the same budget. For each demo program, or the one named by --program.
--quick: fewer budgets, pairs.
"""

import argparse
import contextlib
import dataclasses
import json
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

import demolib
from benchlib import Bench, format_bytes, ratio_interval

STEPS = 16  # of every run that is compared bit for bit
UNWATCHED = 15  # plain steps of the run that makes the trace, in turn with watched ones
ENFORCED = 5  # enforced steps that a peak must be the maximum of
TRACE_ROOM = 1.25  # of the plain peak: a budget under which nothing needs to be dropped


@dataclasses.dataclass(frozen=True)
class Subject:
    """One demo program under the bench."""

    name: str
    reach: float  # the smallest reachable activations, as a share of the plain program's

    def train(self, *arguments, **keywords):
        return demolib.train(*arguments, name=self.name, **keywords)

    def paced(self, *arguments):
        return demolib.PacedRun(*arguments, name=self.name)


SUBJECTS = (Subject("train_gpt", 0.33), Subject("train_resnet", 0.5), Subject("train_lstm", 0.5))


class Point:
    """One budget: its run, and its step times beside plain ones."""

    def __init__(self, budget, run, traced_ns):
        """`traced_ns`: a step of the run that made the trace which Lowtide did not watch."""
        self.budget, self.run, self.traced_ns = budget, run, traced_ns
        self.peak = run.peak("peak_reserved_bytes", "enforce")
        self.requested = run.peak("peak_requested_bytes", "enforce")
        self.plan = run.get("plan") or {}
        self.plain_ns, self.again_ns, self.torch_ns, self.enforced_ns = [], [], [], []
        self.greedy_ns = []  # a plan by `greedy` for the same budget; empty where it finds none

    @property
    def predicted_reserved(self):
        return self.plan.get("predicted_peak_reserved_bytes", -1)

    @property
    def predicted_requested(self):
        return self.plan.get("predicted_peak_requested_bytes", -1)

    @property
    def predicted_extra_ns(self):
        """Recomputation, exchanges of memory, and watching."""
        parts = ("recompute", "memory", "watch")
        return sum(self.plan.get(f"predicted_{part}_ns", 0) for part in parts)

    @property
    def expected_extra_ns(self):
        """The prediction at the speed that the machine has now: other work on it may have slowed
        it since the trace was made, or then, and plain steps tell by how much."""
        return self.predicted_extra_ns * statistics.median(self.plain_ns) / self.traced_ns

    @property
    def extra_ns(self):
        """Median of the pairwise difference: what enforcing really costs."""
        return statistics.median(
            mine - plain for mine, plain in zip(self.enforced_ns, self.plain_ns)
        )

    @property
    def aa_spread_ns(self):
        """How far two plain programs are apart when there is no difference."""
        gaps = [abs(again - plain) for again, plain in zip(self.again_ns, self.plain_ns)]
        return statistics.median(gaps)


def smallest_budget(subject, folder, *arguments):
    """What the refusal of an impossible budget names."""
    common = ("--budget", "1MiB", "--directory", folder, "--steps", STEPS)
    run = subject.train(*common, *arguments, expect=(3,))
    return run["smallest_reachable_bytes"]


def frontier_peaks(folder):
    """Rounded peaks of every plan of the stored trace, from the command line tool."""
    (trace,) = folder.glob("*.trace.json")
    done = subprocess.run(
        [demolib.program("lowtide"), "frontier", trace, "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    return [point["peak_rounded_bytes"] for point in json.loads(done.stdout)["points"]]


def spread(largest, smallest, count):
    return [round(largest + (smallest - largest) * i / (count - 1)) for i in range(count)]


def take_times(subject, point, folder, pairs, plain, again, on_torch, greedy):
    """Enforced steps in turn with plain ones, in an order shuffled per round. `greedy`: arguments
    of a run by that strategy, none where it does not get so low."""
    order = random.Random(point.budget)
    with contextlib.ExitStack() as stack:
        arms = [(plain, point.plain_ns), (again, point.again_ns), (on_torch, point.torch_ns)]
        enforced = [(("--directory", folder), point.enforced_ns)]
        if greedy:
            enforced.append((greedy, point.greedy_ns))
        for arguments, samples in enforced:
            run = stack.enter_context(subject.paced("--budget", point.budget, *arguments))
            while run.step()["session"]["phase"] != "enforce":
                pass
            arms.append((run, samples))
        for _ in range(pairs):
            order.shuffle(arms)
            for run, samples in arms:
                samples.append(run.step()["cpu_ns"])


def judge_greedy(bench, points, smallest, smallest_by_greedy):
    """Must: at equal budgets never slower than the post's procedure, and lower at the end."""
    both = [point for point in points if point.greedy_ns]
    slower = []
    for point in both:
        mine = ratio_interval(point.enforced_ns, point.greedy_ns)
        noise = ratio_interval(point.again_ns, point.plain_ns)
        if mine.low > max(noise.high, 1 / noise.low):
            slower.append(f"{format_bytes(point.budget)}: {mine}")
    bench.require(
        "not slower than strategy greedy at the same budget",
        f"{len(both) - len(slower)} of {len(both)} {slower or ''}".strip(),
        "all",
        both and not slower,
    )
    bench.require(
        "smallest reachable budget against that of greedy",
        f"{format_bytes(smallest)} and {format_bytes(smallest_by_greedy)}",
        "<",
        smallest < smallest_by_greedy,
    )


def judge_bits(bench, points, reference):
    wrong = {point.budget: demolib.differences(point.run, reference) for point in points}
    bad = {budget: what for budget, what in wrong.items() if what}
    bench.require(
        "losses, gradients, buffers, optimizer and RNG state bit-identical to plain",
        f"{len(points) - len(bad)} of {len(points)}" + (f": {bad}" if bad else ""),
        "all",
        not bad,
    )


def judge_peaks(bench, points, frontier):
    few = [len(point.run.in_phase("enforce")) for point in points]
    bench.require("enforced steps per run", min(few), f">= {ENFORCED}", min(few) >= ENFORCED)
    # From step 1: whatever phase, whatever counter.
    over = max(point.run.peak() - point.budget for point in points)
    bench.require(
        "reserved peak of every step within the budget",
        f"worst {over:+} B",
        "<= 0 B over",
        over <= 0,
    )

    low = []
    for point in points:
        # The tool knows rounded bytes; what this plan pays on top of them is the allocator's.
        rounded = point.plan.get("predicted_peak_rounded_bytes", 0)
        room = point.budget - (point.predicted_reserved - rounded)
        between = [peak for peak in frontier if rounded < peak <= room]
        if point.peak < 0.93 * point.budget and between:
            low.append(f"{format_bytes(point.budget)}: {point.peak / point.budget:.1%}")
    bench.require(
        "peak >= 93 % of the budget unless the next plan lies above",
        f"{len(points) - len(low)} of {len(points)} {low or ''}".strip(),
        "all",
        not low,
    )

    ledger = [
        max(
            abs(point.run.peak(key, phase) - point.run.session_peak(key, phase))
            for point in points
            for phase in ("probe", "verify", "enforce")
            if point.run.in_phase(phase)
        )
        for key in ("peak_requested_bytes", "peak_reserved_bytes")
    ]
    bench.require(
        "ledger equals the independent counter (requested, reserved)",
        f"{ledger[0]} B, {ledger[1]} B apart",
        "0 B",
        ledger == [0, 0],
    )

    plans = {
        (point.plan.get("decisions"), point.predicted_requested, point.predicted_extra_ns)
        for point in points
    }
    wanted = min(8, len(points) * 2 // 3)
    bench.require("different plans", len(plans), f">= {wanted}", len(plans) >= wanted)


def judge_prediction(bench, points):
    live = [point.predicted_requested / point.requested - 1 for point in points]
    held = [point.predicted_reserved / point.peak - 1 for point in points]
    bench.require(
        "predicted live peak, error",
        f"{max(map(abs, live)):.3%}",
        "<= 0.5 %",
        max(map(abs, live)) <= 0.005,
    )
    bench.require(
        "predicted reserved peak, error",
        f"{max(map(abs, held)):.3%}",
        "<= 2 %",
        max(map(abs, held)) <= 0.02,
    )
    bench.require(
        "predicted peak never below measured",
        f"{min(live + held):+.3%}",
        ">= 0",
        min(live + held) >= 0,
    )


def judge_times(bench, points):
    strong, weak = [], []
    for point in points:
        step = statistics.median(point.plain_ns)
        if point.expected_extra_ns >= 0.1 * step:
            strong.append(abs(point.extra_ns - point.expected_extra_ns) / point.expected_extra_ns)
        else:
            error = abs(point.extra_ns - point.expected_extra_ns)
            weak.append((error - point.aa_spread_ns) / step)
    if strong:
        bench.require(
            "recompute >= 10 % of the step: median error of its predicted time",
            f"{statistics.median(strong):.1%} over {len(strong)} budgets",
            "<= 15 %",
            statistics.median(strong) <= 0.15,
        )
    if weak:
        bench.require(
            "elsewhere: |predicted - measured| beyond the A/A spread",
            f"{max(weak):.1%} of the step over {len(weak)} budgets",
            "<= 3 %",
            max(weak) <= 0.03,
        )


def judge_monotony(bench, points):
    rises = [after.peak - before.peak for before, after in zip(points, points[1:])]
    bench.require(
        "measured peak never rises as the budget falls",
        f"worst {max(rises):+} B",
        "<= 0 B",
        max(rises) <= 0,
    )
    # Each point is measured beside its own plain steps: ratios compare where times would drift.
    ratios = [ratio_interval(point.enforced_ns, point.plain_ns) for point in points]
    aa = [ratio_interval(point.again_ns, point.plain_ns) for point in points]
    noise = max(max(abs(interval.ratio - 1), interval.half_width) for interval in aa)
    falls = [before.ratio - after.ratio for before, after in zip(ratios, ratios[1:])]
    predicted = [
        before.predicted_extra_ns - after.predicted_extra_ns
        for before, after in zip(points, points[1:])
    ]
    bench.require(
        "predicted step time never falls as the budget falls",
        f"worst {max(predicted)} ns",
        "<= 0 ns",
        max(predicted) <= 0,
    )
    bench.require(
        "measured step time never falls as the budget falls",
        f"worst {max(falls):+.4f}",
        f"<= A/A noise {noise:.4f}",
        max(falls) <= noise,
    )
    return ratios, aa


def judge_reach(bench, subject, points, plain, by_hand):
    least = points[-1]
    resident = min(step["begin_requested_bytes"] for step in plain.steps[2:])
    activations = plain.peak("peak_requested_bytes") - resident
    share = (least.requested - resident) / activations
    bench.require(
        "smallest reachable: activations against the plain program's",
        f"{share:.1%} of {format_bytes(activations)}",
        f"<= {subject.reach:.0%}",
        share <= subject.reach,
    )
    hand = by_hand.peak("peak_requested_bytes")
    bench.require(
        "smallest reachable against per-block recompute by hand",
        f"{format_bytes(least.requested)} and {format_bytes(hand)}",
        "<=",
        least.requested <= hand,
    )

    ledger_fall = points[0].run.session_peak() - least.run.session_peak()
    process_fall = (
        points[0].run["resident_high_water_bytes"] - least.run["resident_high_water_bytes"]
    )
    bench.require(
        "process high-water mark falls with the ledger",
        f"{process_fall / max(1, ledger_fall):.1%} of {format_bytes(ledger_fall)}",
        ">= 80 %",
        ledger_fall > 0 and process_fall >= 0.8 * ledger_fall,
    )


def print_tables(bench, points, ratios, aa):
    rows = []
    for point in points:
        session = point.run["session"]
        rows.append(
            [
                format_bytes(point.budget),
                format_bytes(point.peak),
                f"{point.peak / point.budget:.1%}",
                format_bytes(point.requested),
                format_bytes(point.run.session_peak("peak_rounded_bytes", "enforce")),
                format_bytes(point.predicted_reserved),
                *(
                    format_bytes(session[f"{phase}_peak_reserved_bytes"])
                    for phase in ("warmup", "probe", "verify")
                ),
                point.plan.get("decisions", 0),
                format_bytes(point.run["resident_high_water_bytes"]),
            ]
        )
    bench.table(
        [
            "budget",
            "reserved",
            "used",
            "requested",
            "rounded",
            "predicted",
            "warm-up",
            "probe",
            "verify",
            "dropped",
            "process",
        ],
        rows,
        "Peaks (enforced steps)",
    )
    bench.table(
        [
            "budget",
            "predicted extra ms (memory, watching)",
            "at the speed now",
            "measured extra ms",
            "enforced / plain",
            "plain / plain",
            "enforced / plain on torch's allocator",
            "enforced / greedy",
        ],
        [
            [
                format_bytes(point.budget),
                f"{point.predicted_extra_ns / 1e6:.1f} "
                f"({point.plan.get('predicted_memory_ns', 0) / 1e6:.1f}, "
                f"{point.plan.get('predicted_watch_ns', 0) / 1e6:.1f})",
                f"{point.expected_extra_ns / 1e6:.1f}",
                f"{point.extra_ns / 1e6:.1f}",
                ratio,
                again,
                ratio_interval(point.enforced_ns, point.torch_ns),
                ratio_interval(point.enforced_ns, point.greedy_ns) if point.greedy_ns else "",
            ]
            for point, ratio, again in zip(points, ratios, aa)
        ],
        "Step CPU time (interleaved)",
    )


def measure(bench, subject, count, pairs):
    bench.about(subject.name)
    common = ("--steps", STEPS, "--grad-digest")
    plain = subject.train("--no-lowtide", "--limit", demolib.NO_LIMIT, *common)
    by_hand = subject.train("--no-lowtide", "--recompute", "blocks", *common)
    bench.require(
        "per-block recompute by hand is bit-identical too",
        demolib.differences(by_hand, plain) or "equal",
        "equal",
        not demolib.differences(by_hand, plain),
    )
    with tempfile.TemporaryDirectory(prefix="lowtide-frontier-") as name:
        folder = pathlib.Path(name)
        keep_all = round(plain.peak() * TRACE_ROOM)
        first = subject.train(
            *("--budget", keep_all, "--directory", folder, "--steps", STEPS + 2 * UNWATCHED),
            *("--warmup", UNWATCHED + 1, "--unwatched", UNWATCHED),
        )
        bench.say(
            f"trace made under {format_bytes(keep_all)}: "
            f"{len(first.in_phase('probe'))} probe steps, files "
            + ", ".join(sorted(path.name for path in folder.iterdir()))
        )
        unwatched = first.in_phase("warm-up")[1::2]
        traced_ns = statistics.median(step["cpu_ns"] for step in unwatched)
        bench.figure("watch_ns", first["plan"]["predicted_watch_ns"])
        smallest = smallest_budget(subject, folder)
        by_greedy = folder / "greedy"  # the same trace, without plans of the default strategy
        shutil.copytree(folder, by_greedy)
        greedy = ("--directory", by_greedy, "--strategy", "greedy")
        smallest_by_greedy = smallest_budget(subject, *greedy[1:])
        largest = first["plan"]["predicted_peak_reserved_bytes"]
        bench.figure("plain_peak_reserved_bytes", plain.peak())
        bench.figure("smallest_reachable_bytes", smallest)

        points = []
        for budget in spread(largest, smallest, count):
            run = subject.train("--budget", budget, "--directory", folder, *common)
            points.append(Point(budget, run, traced_ns))
            bench.say(
                f"  {format_bytes(budget)}: reserved peak {format_bytes(points[-1].peak)}, "
                f"{points[-1].plan.get('decisions', 0)} storages dropped"
            )
        probes = sum(len(point.run.in_phase("probe")) for point in points)
        bench.require("runs that share the trace probe again", probes, "0 steps", probes == 0)

        same_allocator = ("--no-lowtide", "--limit", demolib.NO_LIMIT)
        with (
            subject.paced(*same_allocator) as one,
            subject.paced(*same_allocator) as two,
            subject.paced("--no-lowtide") as on_torch,
        ):
            for run in (one, two, on_torch):
                for _ in range(3):
                    run.step()
            for point in points:
                reached = point.budget >= smallest_by_greedy
                rival = greedy if reached else ()
                take_times(subject, point, folder, pairs, one, two, on_torch, rival)
        frontier = frontier_peaks(folder)

    judge_bits(bench, points, plain)
    judge_peaks(bench, points, frontier)
    judge_prediction(bench, points)
    ratios, aa = judge_monotony(bench, points)
    judge_times(bench, points)
    judge_greedy(bench, points, smallest, smallest_by_greedy)
    judge_reach(bench, subject, points, plain, by_hand)
    print_tables(bench, points, ratios, aa)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--program", choices=[*(subject.name for subject in SUBJECTS), "all"], default="all"
    )
    options = parser.parse_args()
    count, pairs = (4, 8) if options.quick else (12, 20)
    bench = Bench("frontier", quick=options.quick)
    for subject in SUBJECTS:
        if options.program in (subject.name, "all"):
            measure(bench, subject, count, pairs)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())

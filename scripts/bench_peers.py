#!/usr/bin/env python3
"""Lowtide beside what users write by hand: the same models under the same memory.

Peers: in C++ each block recomputed by a custom autograd Function (the demo programs' --recompute
blocks); in Python torch.utils.checkpoint around each block, and its selective form. Each peer is
divided by the plain step of its own language; Lowtide's budget is the peer's share of the plain
peak, of what the plain C++ program reserves. Steps are CPU time, taken in turn; a second plain run
is the A/A arm. Instructions are callgrind's, of settled steps. --quick: fewer pairs and steps;
--program NAME: one program only.
"""

import argparse
import dataclasses
import pathlib
import sys
import tempfile

import demolib
from bench_overhead import instructions
from benchlib import Bench, format_bytes, interleave, ratio_interval

MODELS = {
    "train_gpt": {
        "batch": 8,
        "context": 128,
        "width": 128,
        "layers": 4,
        "heads": 4,
        "dropout": 0.1,
    },
    "train_resnet": {"batch": 32, "width": 16, "layers": 3, "dropout": 0},
    "train_lstm": {"batch": 32, "context": 64, "width": 256, "layers": 2, "dropout": 0.1},
}
TEXT = "/usr/share/common-licenses/GPL-3"
SETTLED = 3  # steps of a peer before its figures count
STEPS = 16  # within these a session has traced, verified and begun to enforce


def model_options(name):
    return [part for key, value in MODELS[name].items() for part in (f"--{key}", value)]


def data_options(name):
    if name == "train_resnet":
        return ("--images", demolib.build_folder() / "digits.csv")
    return ("--text", TEXT)


def python_run(name, arm):
    return demolib.PacedRun(
        demolib.ROOT / "tests" / "bench" / "peer_train.py",
        name,
        "--arm",
        arm,
        "--counter",
        demolib.program("libpeer_counter.so"),
        *data_options(name),
        *model_options(name),
        executable=sys.executable,
    )


@dataclasses.dataclass
class Peer:
    """One way to save memory by hand: its run, its plain program's, and Lowtide's beside it."""

    title: str
    run: demolib.PacedRun
    plain: demolib.PacedRun
    again: demolib.PacedRun
    peak_share: float = 0.0
    budget: int = 0
    lowtide: demolib.PacedRun = None


def settled_peak(run):
    """Requested bytes that the steps of a paced run need, optimizer state made."""
    return [run.step()["peak_requested_bytes"] for _ in range(SETTLED)][-1]


def enforced(name, budget, folder):
    """A paced run under a budget, past its probe and verification."""
    run = demolib.PacedRun(
        "--budget",
        budget,
        "--directory",
        folder,
        *model_options(name),
        name=name,
    )
    while run.step()["session"]["phase"] != "enforce":
        pass
    return run


class Field:
    """All that runs for one program, taking its steps in turn."""

    def __init__(self, bench, name, folder):
        self.bench, self.name, self.folder = bench, name, folder
        self.runs = []
        self.plain, self.again = (self.start(self.cpp("--no-lowtide")) for _ in range(2))
        python_plain, python_again = (self.start(python_run(name, "plain")) for _ in range(2))
        by_hand = self.start(self.cpp("--no-lowtide", "--recompute", "blocks"))
        self.peers = [Peer("C++ Function per block", by_hand, self.plain, self.again)]
        for arm, title in (
            ("checkpoint", "Python checkpoint per block"),
            ("selective", "Python selective checkpoint"),
        ):
            run = self.start(python_run(name, arm))
            self.peers.append(Peer(title, run, python_plain, python_again))

    def cpp(self, *arguments):
        return demolib.PacedRun(*arguments, *model_options(self.name), name=self.name)

    def start(self, run):
        self.runs.append(run)
        return run

    def close(self):
        for run in self.runs:
            run.close()

    def give_budgets(self):
        """Each peer's share of its plain program's peak, of what plain C++ reserves."""
        arguments = ("--steps", STEPS, *model_options(self.name))
        whole = demolib.train(
            "--no-lowtide", "--limit", demolib.NO_LIMIT, *arguments, name=self.name
        )
        for peer in list(self.peers):
            if self.refused(peer):
                self.peers.remove(peer)
                self.runs.remove(peer.run)
                peer.run.close()
        peaks = {run: settled_peak(run) for run in self.runs}
        for peer in self.peers:
            peer.peak_share = peaks[peer.run] / peaks[peer.plain]
            peer.budget = round(whole.peak() * peer.peak_share)
            peer.lowtide = self.start(enforced(self.name, peer.budget, self.folder))

    def refused(self, peer):
        """Whether torch refuses this peer's way for this model; its own words are passed on."""
        try:
            peer.run.step()
        except demolib.RunFailed as error:
            reason = str(error).strip().splitlines()[-1]
            self.bench.say(f"  {peer.title}: not possible for this model: {reason}")
            return True
        return False

    def take_times(self, pairs):
        arms = {run: lambda run=run: run.step()["cpu_ns"] for run in self.runs}
        return interleave(arms, pairs)


def judge_times(bench, field, samples):
    rows = []
    for peer in field.peers:
        plain = samples[peer.plain]
        theirs = ratio_interval(samples[peer.run], plain)
        ours = ratio_interval(samples[peer.lowtide], samples[field.plain])
        # What these two comparisons call a difference when there is none.
        aa = [
            ratio_interval(samples[again], samples[first])
            for again, first in ((peer.again, peer.plain), (field.again, field.plain))
        ]
        spread = max(max(abs(interval.ratio - 1), interval.half_width) for interval in aa)
        rows.append(
            [
                peer.title,
                f"{peer.peak_share:.1%}",
                format_bytes(peer.budget),
                theirs,
                ours,
                f"{spread:.4f}",
            ]
        )
        bench.require(
            f"step under Lowtide against {peer.title}, each over its plain step",
            f"{ours.ratio:.3f} and {theirs.ratio:.3f}",
            f"<= peer + A/A {spread:.3f}",
            ours.ratio <= theirs.ratio + spread,
        )
    bench.table(
        ["peer", "peak / plain", "budget", "peer / plain", "Lowtide / plain", "A/A"],
        rows,
        "Step CPU time at one peak (interleaved)",
    )


def judge_instructions(bench, field, steps):
    """Against the C++ peer only: instructions of two languages do not compare. Lowtide's run finds
    the plan that the timed one verified, so that few steps settle it."""
    peer = field.peers[0]
    model = model_options(field.name)
    arms = {
        "plain": ("--no-lowtide",),
        "by hand": ("--no-lowtide", "--recompute", "blocks"),
        "Lowtide": ("--budget", peer.budget, "--directory", field.folder),
    }
    counts = {
        arm: instructions((*arguments, *model), steps, name=field.name, settled=SETTLED)
        for arm, arguments in arms.items()
    }
    bench.table(
        ["arm", "instructions a step", "ratio"],
        [
            [arm, f"{count / steps:,.0f}", f"{count / counts['plain']:.4f}"]
            for arm, count in counts.items()
        ],
        f"Instructions at {format_bytes(peer.budget)}",
    )
    bench.require(
        f"instructions a step under Lowtide against {peer.title}",
        f"{counts['Lowtide'] / steps:,.0f} and {counts['by hand'] / steps:,.0f}",
        "<",
        counts["Lowtide"] < counts["by hand"],
    )


def measure(bench, name, pairs, counted):
    bench.about(name)
    with tempfile.TemporaryDirectory(prefix="lowtide-peers-") as folder:
        field = Field(bench, name, pathlib.Path(folder))
        try:
            field.give_budgets()
            samples = field.take_times(pairs)
        finally:
            field.close()
        judge_times(bench, field, samples)
        judge_instructions(bench, field, counted)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--program", choices=[*MODELS, "all"], default="all")
    options = parser.parse_args()
    pairs, counted = (10, 1) if options.quick else (50, 2)
    bench = Bench("peers", quick=options.quick)
    for name in MODELS:
        if options.program in (name, "all"):
            measure(bench, name, pairs, counted)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())

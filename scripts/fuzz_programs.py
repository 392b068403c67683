#!/usr/bin/env python3
"""Random training programs against their plain selves: scripts/fuzz programs [--count N].

Builds the fuzz target (release) and runs it on N seeds, split over jobs. Each program is trained
plainly, probed, and run at 25, 50 and 75 % of the way from its smallest budget to keep-all, and
once from step 1 without a trace: bits, memory counted from outside, the checker. A wrong program is
printed with its seed and shrunk. Exit code 1 where one was wrong, or where fewer than 90 % of the
pairs of program and budget dropped a storage.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
COUNTS = ("programs", "pairs", "dropped", "evicted", "diverged", "refused", "refused_alike")


def build(log):
    """Configures and builds the target; the executable."""
    folder = ROOT / "build" / "release"
    venv = os.environ.get("LOWTIDE_VENV") or ROOT / ".venv"
    python = pathlib.Path(venv).absolute() / "bin" / "python"
    for command in (
        ["cmake", "--preset", "release", f"-DLOWTIDE_PYTHON={python}"],
        ["cmake", "--build", folder, "--target", "fuzz_programs"],
    ):
        done = subprocess.run(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
        if done.returncode:
            raise SystemExit(f"fuzz programs: the build failed; see {log.name}")
    return folder / "bin" / "fuzz_programs"


def read_tally(line):
    """'TALLY programs=10 pairs=30 ... wrong=0' as numbers by name."""
    return {name: int(value) for name, value in (word.split("=") for word in line.split()[1:])}


def run_jobs(program, options, out):
    """Runs the seeds; the summed tally. Every line goes to stdout and the log."""
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    share = -(-options.count // options.jobs)
    jobs = []
    for first in range(options.first, options.first + options.count, share):
        count = min(share, options.first + options.count - first)
        command = [program, "--first", str(first), "--count", str(count), "--every", "500"]
        if options.seconds:
            command += ["--seconds", str(options.seconds)]
        jobs.append(
            subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=environment,
            )
        )
    total = dict.fromkeys((*COUNTS, "wrong"), 0)
    for job in jobs:
        tally = None
        for line in job.stdout:
            if line.startswith("TALLY "):
                tally = read_tally(line)
            else:
                print(line, end="", file=out)
                print(line, end="", flush=True)
        if job.wait() not in (0, 1) or tally is None:
            raise SystemExit(f"fuzz programs: a job ended with {job.returncode}: {job.args}")
        for name in total:
            total[name] += tally[name]
    return total


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=10_000, help="programs (10000)")
    parser.add_argument("--seconds", type=int, default=0, help="stop by then (when all are done)")
    parser.add_argument("--first", type=int, default=1, help="first seed (1)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="default: all cores")
    options = parser.parse_args()
    folder = ROOT / "build" / "fuzz"
    folder.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    with open(folder / "programs.log", "w", encoding="utf-8") as log:
        program = build(log)
        total = run_jobs(program, options, log)
        share = total["dropped"] / max(1, total["pairs"])
        summary = ", ".join(f"{name} {value}" for name, value in total.items())
        print(f"from seed {options.first}: {summary}", file=log)
    print(f"{summary} in {(time.monotonic() - start) / 60:.1f} min; log {log.name}")
    requirements = [
        (total["wrong"] == 0, "no program is wrong", total["wrong"], "= 0"),
        (share >= 0.9, "pairs that drop a storage", f"{share:.3f}", ">= 0.9"),
    ]
    for passed, what, figure, bound in requirements:
        print(f"{'PASS' if passed else 'FAIL'} {what}: {figure} ({bound})")
    return 0 if all(passed for passed, *_ in requirements) else 1


if __name__ == "__main__":
    sys.exit(main())

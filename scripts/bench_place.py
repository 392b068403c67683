#!/usr/bin/env python3
"""`lowtide place` on MiniMalloc's 11 hard public instances: packed into 1 MiB within 60 s each?

The instances: ../shared/data/minimalloc beside the repository. Without them the bench counts a skip
for each and packs the small ones of tests/data/placement alone. Every packing is judged by
scripts/check_placement.py, which shares no code with the product. --quick: the small ones and A.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import demolib
from benchlib import ROOT, Bench
from check_placement import height_of

SHARED = ROOT.parent / "shared" / "data" / "minimalloc"
OWN = ROOT / "tests" / "data" / "placement"
NAMES = "ABCDEFGHIJK"
SECONDS = 60


def capacity_of(path):
    """NAME.CAPACITY.csv"""
    return int(path.name.split(".")[1])


def pack(path, folder):
    """One row of the table, and whether it was packed."""
    solution = pathlib.Path(folder) / path.name
    command = [
        demolib.program("lowtide"),
        "place",
        path,
        "--capacity",
        str(capacity_of(path)),
        "--json",
    ]
    command += ["--seconds", str(SECONDS), "-o", solution]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return [path.name, "-", "-", "-", "-", f"no: {done.stderr.strip()}"], False
    answer = json.loads(done.stdout)
    row = [path.name, answer["buffers"], answer["lower_bound_bytes"]]
    row += [answer["height_bytes"], f"{answer['seconds']:.2f}"]
    try:
        judged = height_of(path, solution, capacity_of(path))
    except ValueError as error:
        return [*row, f"no: {error}"], False
    packed = judged == answer["height_bytes"] and answer["seconds"] <= SECONDS
    return [*row, "yes" if packed else "no"], packed


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    bench = Bench("place", quick=options.quick)

    paths = sorted(OWN.glob("*.csv"))
    names = NAMES[:1] if options.quick else NAMES
    hard = [SHARED / f"{name}.1048576.csv" for name in names]
    missing = [path for path in hard if not path.exists()]
    for path in missing:
        bench.say(f"SKIP {path.name}: {SHARED} does not have it")
    paths += [path for path in hard if path.exists()]
    with tempfile.TemporaryDirectory() as folder:
        results = [pack(path, folder) for path in paths]
    headers = ["instance", "buffers", "bound", "height", "seconds", "packed"]
    bench.table(headers, [row for row, _ in results])
    packed = sum(ok for _, ok in results)
    bench.figure("skipped", len(missing))
    bench.require(
        f"packed within {SECONDS} s and judged ({len(missing)} skipped)",
        f"{packed} of {len(paths)}",
        "all",
        packed == len(paths),
    )
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""CUDA memory by planned addresses, over the CUDA double: what is reserved for what is needed.

Models train for a few steps under torch's native allocator, its expandable segments, and door A
with a plan that an earlier run saved, or one that is made while the program runs. Reserved: the
most that the double gave out by cudaMalloc and cuMemCreate, over the whole process. Peak: the
largest sum of requested bytes that live at once, by torch's own history of the native run; the
requests of all runs are the same. Then what one allocation and its free cost, on a small block:
thread CPU time, the least of 60 interleaved batches.

cuDNN is off, and values are garbage: over the double nothing is computed. --quick: small models.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import demolib
from benchlib import ROOT, Bench, format_bytes

MIB = 1 << 20
SMALL = ["GPT 4x256", "GPT 4x256 checkpointed", "U-Net 32ch"]
LARGE = ["GPT 12x768", "GPT 12x768 checkpointed"]
DOUBLE = ("libcuda_double.so", "libcuda_double_driver.so", "libcuda_double_nvml.so")


def run_arm(*arguments, **settings):
    """One process over the double; what it printed."""
    build = pathlib.Path(demolib.program("lowtide")).parents[1]
    tests = ROOT / "tests"
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("LOWTIDE_")},
        "LD_PRELOAD": ":".join(str(build / "lib" / name) for name in DOUBLE),
        "LOWTIDE_BUILD": str(build),
        "LOWTIDE_DOUBLE_QUIET": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(tests / "python"),
        **settings,
    }
    command = [sys.executable, tests / "bench" / "cuda_arm.py", *arguments]
    done = subprocess.run(
        list(map(str, command)), env=environment, capture_output=True, text=True, timeout=1200
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, arguments))} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(model, folder):
    plan = pathlib.Path(folder) / "a.placement.json"
    arms = {"native": run_arm("train", model, "native")}
    arms["expandable"] = run_arm(
        "train", model, "plain", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"
    )
    arms["record"] = run_arm("train", model, "record", plan)
    arms["load"] = run_arm("train", model, "load", plan)
    arms["probe"] = run_arm("train", model, "probe")
    return arms


def judge(bench, model, arms):
    """Prints the requirements of one model; its row of the table."""
    bench.about(model)
    peak, native = arms["native"]["peak"], arms["native"]["reserved"]
    loaded, probed, after = (
        arms["load"]["reserved"],
        arms["probe"]["reserved"],
        arms["probe"]["after"],
    )
    small = peak < 400 * MIB
    bound = peak + 4 * MIB if small else int(1.01 * peak)
    ratio = f"{loaded / peak:.4f}"
    bench.require(
        "reserved, plan loaded at start",
        f"{format_bytes(loaded)}, {ratio} of the peak",
        "<= peak + 4 MiB" if small else "<= 1.01",
        loaded <= bound,
    )
    placed = arms["load"]["placed"]
    bench.require(
        "requests at their planned address",
        f"{placed['hits']} of {placed['requests']}",
        "all",
        placed["hits"] == placed["requests"],
    )
    bench.require(
        "reserved, probed in the process",
        format_bytes(probed),
        f"<= native, {format_bytes(native)}",
        probed <= native,
    )
    bench.require(
        "reserved, probed, after engagement",
        f"{after / peak:.4f} of the peak",
        "<= 1.03, or peak + 4 MiB under 400 MiB",
        after <= max(1.03 * peak, peak + 4 * MIB if small else 0),
    )
    misuse = sum(arm["misuse"] for arm in arms.values())
    bench.require("misuse that the double saw", misuse, "0", misuse == 0)
    reserved = [arms[name]["reserved"] for name in ("native", "expandable", "load", "probe")]
    row = [model, format_bytes(peak)]
    row += [f"{format_bytes(count)} ({count / peak:.3f})" for count in [*reserved, after]]
    return row


def judge_pairs(bench):
    bench.about("allocate + free, 4 KiB")
    a, b = run_arm("pairs", "a"), run_arm("pairs", "b")
    through, planned, pluggable = a["through"], a["planned"], b["door_b"]
    rows = [
        [name, f"{cost['native']:.0f} ns", f"{cost['ours']:.0f} ns"]
        for name, cost in [
            ("door A, pass-through", through),
            ("door A, planned address", planned),
            ("door B", pluggable),
        ]
    ]
    bench.table(["", "native", "Lowtide"], rows)
    bench.require(
        "door A, pass-through",
        f"{through['ours'] - through['native']:+.0f} ns",
        "<= native + 150 ns",
        through["ours"] <= through["native"] + 150,
    )
    for name, cost in [("door A, planned address", planned), ("door B", pluggable)]:
        bench.require(
            name,
            f"{cost['ours'] / cost['native']:.2f} x native",
            "<= 1.0",
            cost["ours"] <= cost["native"],
        )
    bench.require("pairs at their planned address", f"{a['hits']:.4f}", "1", a["hits"] == 1)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    bench = Bench("allocator", quick=options.quick)
    rows = []
    for model in SMALL if options.quick else SMALL + LARGE:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(judge(bench, model, measure(model, folder)))
    bench.about("reserved (over the peak)")
    headers = ["model", "peak", "native", "expandable", "loaded", "probed", "probed, after"]
    bench.table(headers, rows, "by the double's count")
    judge_pairs(bench)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())

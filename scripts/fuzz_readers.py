#!/usr/bin/env python3
"""Fuzzes the file readers: scripts/fuzz readers [--seconds N] [--jobs N].

Each reader gets an equal part of the time under libFuzzer with address and undefined-behaviour
checks, then the same fuzzer has to find a bug planted in that reader in a minute of CPU time.
Prints the share of the readers' lines that the fuzzing reached. Inputs that break a reader stay in
build/fuzz/findings. Exit code 1 where one was found, a planted bug was not, or lines were missed.

Where clang 16 or newer with libFuzzer is missing, the seeded driver runs instead, built by the
default compiler, and lines are not counted; it says so.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "fuzz"
# What each target reads files with; its lines are counted over all targets together.
READERS = {
    "trace": ["src/core/trace_json.cc", "src/core/trace_validate.cc", "src/core/json_reader.cc"],
    "plan": ["src/core/plan_json.cc", "src/core/plan.cc"],
    "instance": ["planner/instance.cc"],
}
LEAST_COVERAGE = 90.0  # per cent of lines
PLANTED_SECONDS = 60  # of one core
PLANTED_TEXTS = 200_000  # more than fit in that time: ends a search in vain
MAX_BYTES = 16384  # of a text: longer ones reach no further lines, only slower


def find_clang():
    """Newest clang (16 or later) that links a libFuzzer program, with its llvm tools; else None."""
    probe = BUILD / "probe.cc"
    probe.write_text(
        "#include <source_location>\n#include <cstddef>\n#include <cstdint>\n"
        'extern "C" int LLVMFuzzerTestOneInput(const uint8_t*, size_t) {\n'
        "  return std::source_location::current().line() == 0;\n}\n"
    )
    for version in range(24, 15, -1):
        tools = [shutil.which(f"{t}-{version}") for t in ("clang++", "llvm-profdata", "llvm-cov")]
        if not all(tools):
            continue
        command = [
            tools[0],
            "-std=c++20",
            "-fsanitize=fuzzer,address",
            probe,
            "-o",
            BUILD / "probe",
        ]
        if subprocess.run(command, capture_output=True).returncode == 0:
            return tools
    return None


def build(clang, jobs):
    """Builds all targets, quietly unless it fails."""
    configure = ["cmake", "--preset", "fuzz"]
    if clang:
        configure.append(f"-DCMAKE_CXX_COMPILER={clang[0]}")
    else:
        configure += ["-DLOWTIDE_LIBFUZZER=OFF", "-DCMAKE_CXX_FLAGS="]
    names = [f"fuzz_{kind}_file{suffix}" for kind in READERS for suffix in ("", "_planted")]
    make = ["cmake", "--build", BUILD, "-j", str(jobs), "--target", *names]
    with open(BUILD / "build.log", "w", encoding="utf-8") as log:
        for command in (configure, make):
            if subprocess.run(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT).returncode:
                sys.exit((BUILD / "build.log").read_text(encoding="utf-8")[-6000:])


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def fuzz(name, seconds, clang, findings):
    """Runs one program; (exit code, texts tried, CPU seconds)."""
    folder = BUILD / "run" / name
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "corpus").mkdir(parents=True)
    findings.mkdir(parents=True, exist_ok=True)
    command = [BUILD / "bin" / name]
    if clang:
        planted = name.endswith("_planted")
        command.append(f"-runs={PLANTED_TEXTS}" if planted else f"-max_total_time={seconds}")
        command += [f"-max_len={MAX_BYTES}", "-timeout=20"]
        command += ["-rss_limit_mb=2048", "-print_final_stats=1", f"-artifact_prefix={findings}/"]
        command.append(folder / "corpus")
    else:
        command += ["--seconds", str(seconds), "--seed", str(time.time_ns() % 2**31)]
    environment = dict(os.environ, LLVM_PROFILE_FILE=str(folder / "lines.profraw"))
    start = cpu_seconds()
    with open(folder / "log.txt", "w", encoding="utf-8") as log:
        done = subprocess.run(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
    text = (folder / "log.txt").read_text(encoding="utf-8", errors="replace")
    runs = re.findall(r"number_of_executed_units: (\d+)|^(\d+) texts|^#(\d+)", text, re.MULTILINE)
    tried = int(next(filter(None, runs[-1]))) if runs else 0
    if done.returncode and not name.endswith("_planted"):
        print(text[-4000:])
    return done.returncode, tried, cpu_seconds() - start


def coverage(clang):
    """Lines reached and lines there are, for each source of the readers."""
    merged = BUILD / "run" / "lines.profdata"
    raw = [BUILD / "run" / f"fuzz_{kind}_file" / "lines.profraw" for kind in READERS]
    subprocess.run([clang[1], "merge", "-sparse", *raw, "-o", merged], check=True)
    sources = [source for files in READERS.values() for source in files]
    libraries = sorted((BUILD / "lib").glob("liblowtide_*.so"))
    objects = [part for library in libraries for part in ("-object", str(library))]
    command = [clang[2], "export", "-summary-only", f"-instr-profile={merged}", *objects]
    command += ["-sources", *(str(ROOT / source) for source in sources)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    files = json.loads(done.stdout)["data"][0]["files"]
    return {
        str(pathlib.Path(f["filename"]).relative_to(ROOT)): (
            f["summary"]["lines"]["covered"],
            f["summary"]["lines"]["count"],
        )
        for f in files
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=600, help="of fuzzing (default: 600)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="side by side")
    options = parser.parse_args()

    BUILD.mkdir(parents=True, exist_ok=True)
    clang = find_clang()
    if not clang:
        print(
            "no clang++ 16 or newer with libFuzzer: the seeded driver runs, lines are not counted"
        )
        print("  Debian has it: apt-get install clang-16 libclang-rt-16-dev llvm-16")
    build(clang, options.jobs)

    failed = 0

    def judge(passed, text):
        nonlocal failed
        failed += not passed
        print(f"{'PASS' if passed else 'FAIL'} {text}", flush=True)

    findings = BUILD / "findings"
    part = max(1, options.seconds // len(READERS))
    with concurrent.futures.ThreadPoolExecutor(max(1, options.jobs)) as side_by_side:
        runs = {
            kind: side_by_side.submit(fuzz, f"fuzz_{kind}_file", part, clang, findings)
            for kind in READERS
        }
    for kind, run in runs.items():
        code, tried, _ = run.result()
        where = f"; see {findings.relative_to(ROOT)}" if code else ""
        judge(
            code == 0, f"{kind} reader: {tried} texts in {part} s, {bool(code):d} findings{where}"
        )
    planted = BUILD / "run" / "planted"
    for kind in READERS:
        name = f"fuzz_{kind}_file_planted"
        code, tried, seconds = fuzz(name, PLANTED_SECONDS, clang, planted)
        found = f"found after {tried} texts" if code else "not found"
        judge(
            code != 0 and seconds < PLANTED_SECONDS,
            f"{kind} reader: planted bug {found}, {seconds:.1f} CPU s (bound {PLANTED_SECONDS} s)",
        )
    if clang:
        lines = coverage(clang)
        for source, (covered, count) in sorted(lines.items()):
            print(f"  {source:32} {covered:5} of {count:5} lines {100 * covered / count:6.1f} %")
        covered, count = (sum(column) for column in zip(*lines.values(), strict=True))
        share = 100 * covered / count
        judge(
            share >= LEAST_COVERAGE, f"lines reached: {share:.1f} % (bound {LEAST_COVERAGE:.0f} %)"
        )
    print(f"readers: {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""scripts/device-check on the CPU: the rows that a GPU machine runs, on a small model."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "device-check"


def test_cpu_rows_pass():
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--device", "cpu"],
        capture_output=True,
        text=True,
        timeout=400,
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert sum("(" in line and line.startswith("PASS budget") for line in lines) == 6
    assert lines[-1] == "device-check: 9 of 9 rows passed"


def test_without_what_is_carried_it_says_how_to_make_it(tmp_path):
    # A copy of the scripts alone: a tree where --prepare has not run.
    (tmp_path / "scripts").mkdir()
    for name in ("device-check", "demolib.py"):
        (tmp_path / "scripts" / name).write_bytes((ROOT / "scripts" / name).read_bytes())
    done = subprocess.run(
        [sys.executable, str(tmp_path / "scripts" / "device-check")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "--prepare" in done.stderr


def test_a_row_that_hangs_is_ended_and_the_next_one_runs(tmp_path):
    # Stands in for train_gpt: every run sleeps past the row's limit.
    code = f"""
import importlib.machinery, importlib.util, subprocess, sys
sys.path.insert(0, {str(SCRIPT.parent)!r})
loader = importlib.machinery.SourceFileLoader("device_check", {str(SCRIPT)!r})
module = importlib.util.module_from_spec(importlib.util.spec_from_loader("device_check", loader))
loader.exec_module(module)
check = module.Check(60)
check.row("hangs", 2, lambda limit: subprocess.run(["sleep", "30"], timeout=limit))
check.row("next", 2, lambda limit: (True, "fine", 1))
print(check.passed, check.failed)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    lines = done.stdout.splitlines()
    assert lines[0].startswith("FAIL hangs: did not end within 2 s"), done.stderr
    assert lines[1].startswith("PASS next: fine")
    assert lines[2] == "1 1"

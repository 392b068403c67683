"""Door C: the preloaded library that counts a program's CUDA memory, over the CUDA double.

The double's own counters are the judge. It stands behind the library as a real runtime would:
linked with the program, loaded late by Python's way, hidden inside the program, or absent.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import cuda_double
import pytest

HERE = pathlib.Path(__file__).resolve().parent
BUILD = cuda_double.BUILD
MIB = 1 << 20
WATCH = BUILD / "lib" / "liblowtide_cuda_preload.so"
RUNTIME = BUILD / "lib" / "libcuda_double.so"
DRIVER = BUILD / "lib" / "libcuda_double_driver.so"
PROGRAM = BUILD / "bin" / "cuda_memory"


class Run:
    def __init__(self, done):
        self.code, self.output, self.screen = done.returncode, done.stdout, done.stderr

    def double(self):
        """By device: bytes now and at most, as the program last printed them."""
        found = re.findall(r"^double (\d) (\d+) (\d+)$", self.output, re.MULTILINE)
        return {int(device): (int(now), int(most)) for device, now, most in found}


def run(*command, preload=(WATCH, RUNTIME, DRIVER), devices=2, **variables):
    clean = {key: value for key, value in os.environ.items() if not key.startswith("LOWTIDE_")}
    clean.update({"OMP_NUM_THREADS": "1", "LD_PRELOAD": ":".join(map(str, preload))})
    clean.update({"LOWTIDE_DOUBLE_DEVICES": str(devices), "LOWTIDE_DOUBLE_QUIET": "1"})
    clean.update({key: str(value) for key, value in variables.items()})
    return Run(
        subprocess.run(
            [str(part) for part in command],
            env=clean,
            capture_output=True,
            text=True,
            timeout=120,
        )
    )


def watched(folder, *command, **options):
    """A run that writes its report, and the report."""
    path = folder / "report.json"
    done = run(*command, LOWTIDE_CUDA_REPORT=path, **options)
    return done, json.loads(path.read_text())


def device(report, number=0):
    (found,) = [entry for entry in report["devices"] if entry["device"] == number]
    return found


# ---- what it counts


@pytest.mark.parametrize("mode", ["plain", "physical", "threads", "thread_end"])
def test_figures_are_the_doubles(tmp_path, mode):
    done, report = watched(tmp_path, PROGRAM, mode, LOWTIDE_DOUBLE_REPORT=1)
    assert (done.code, report["complete"], report["nothing_intercepted"]) == (0, True, None)
    assert [entry["device"] for entry in report["devices"]] == [0, 1] if mode == "plain" else [0]
    # At its very end: also what is freed after main counts.
    ends = re.findall(r"^device (\d): (\d+) bytes now, (\d+) at most$", done.screen, re.MULTILINE)
    assert len(ends) == 2
    for number, now, most in ends:
        if int(most) > 0:
            counted = device(report, int(number))
            assert (counted["live_bytes"], counted["peak_bytes"]) == (int(now), int(most))
    assert report["unknown_frees"] == report["failed_frees"] == report["lost"] == 0


def test_segments_and_the_largest_of_them(tmp_path):
    _, report = watched(tmp_path, PROGRAM, "plain")
    first = device(report)
    assert first["allocations"] == 4, "one before main; one of 0 bytes is none"
    assert first["frees"] == 3, "one after main"
    assert (first["segments"], first["peak_segments"]) == (1, 3)
    assert first["noted_bytes"] == first["peak_bytes"] == 25 * MIB
    assert first["largest_bytes"] == [20 * MIB, 3 * MIB, 2 * MIB]


def test_each_family_of_functions(tmp_path):
    done, report = watched(tmp_path, PROGRAM, "families")
    managed, pinned = report["managed"], report["pinned"]
    assert (managed["peak_bytes"], managed["live_bytes"]) == (7 * MIB, 0)
    assert (pinned["peak_bytes"], pinned["allocations"], pinned["frees"]) == (3 * MIB, 2, 1)
    # The double takes managed memory from the device.
    assert device(report)["peak_bytes"] == done.double()[0][1] - 7 * MIB
    assert device(report)["allocations"] == 6
    assert device(report)["frees"] == 5


def test_failures_and_frees_of_nobodys_memory(tmp_path):
    _, report = watched(tmp_path, PROGRAM, "trouble")
    assert device(report)["failures"] == 1
    assert device(report)["largest_failure_bytes"] == 1 << 40
    assert report["unknown_frees"] == 1


def test_the_command_begins_anew_inside_a_watched_process(tmp_path):
    path = tmp_path / "report.json"
    command = (BUILD / "bin" / "lowtide", "run", "--watch-cuda", "--report", path, "--", PROGRAM)
    run(*command, "plain", preload=(RUNTIME, DRIVER), LOWTIDE_CUDA_FIRST_PROCESS=1)
    assert device(json.loads(path.read_text()))["peak_bytes"] == 25 * MIB


def test_a_request_that_is_served_by_another_counts_once(tmp_path):
    nested = BUILD / "doubles" / "libnested_runtime.so"
    _, report = watched(tmp_path, PROGRAM, "nested", preload=(WATCH, nested, RUNTIME, DRIVER))
    assert report["managed"]["peak_bytes"] == 9 * MIB
    assert device(report)["peak_bytes"] == 3 * MIB


@pytest.mark.parametrize("mode", ["plain", "families", "physical", "trouble", "threads"])
def test_the_program_gets_what_it_would_without(mode):
    without = run(PROGRAM, mode, preload=(RUNTIME, DRIVER))
    with_it = run(PROGRAM, mode)
    assert (with_it.code, with_it.output) == (without.code, without.output)
    assert without.screen == ""


def test_torchs_segments_native_and_expandable(tmp_path):
    path = tmp_path / "report.json"
    command = [BUILD / "bin" / "lowtide", "run", "--watch-cuda", "--report", path, "--"]
    libraries = [BUILD / "lib" / name for name in cuda_double.LIBRARIES]
    done = run(*command, sys.executable, HERE / "watch_cuda_program.py", preload=libraries)
    assert done.code == 0, done.screen[-4000:]
    own = json.loads(done.output)
    report = json.loads(path.read_text())
    for number, figures in enumerate(own["devices"]):
        counted = device(report, number)
        assert counted["peak_bytes"] == figures["peak_bytes"]
        assert counted["live_bytes"] in (figures["live_bytes"], 0), "torch may free at its end"
        assert counted["peak_bytes"] > counted["live_bytes"]
        assert counted["failures"] == 0
    assert own["mapped"] > 0
    assert report["pinned"]["peak_bytes"] >= own["pinned"]
    assert (report["complete"], report["unknown_frees"], report["failed_frees"]) == (True, 0, 0)


# ---- where there is nothing to see


def test_a_runtime_that_is_loaded_late_is_found(tmp_path):
    plugin = BUILD / "doubles" / "liblate_plugin.so"
    program = BUILD / "bin" / "late_runtime"
    done, report = watched(tmp_path, program, RUNTIME, plugin, preload=(WATCH,))
    assert done.output == "allocated 0 freed 0\n"
    assert device(report)["peak_bytes"] == 11 * MIB


@pytest.mark.parametrize(
    ("program", "behind", "says"),
    [
        ("no_torch", (), "this process has no CUDA. Fix:"),
        ("no_torch", (RUNTIME,), "the CUDA runtime is in this process, but no memory"),
        ("cuda_memory_static", ("lone_driver",), "Fix: link it as a shared library"),
    ],
    ids=["none", "unused", "static"],
)
def test_nothing_intercepted_is_said_with_its_reason(tmp_path, program, behind, says):
    behind = [BUILD / "doubles" / f"lib{x}.so" if x == "lone_driver" else x for x in behind]
    preload = (WATCH, *behind)
    command = (BUILD / "bin" / program, "plain")
    plain = run(*command, preload=behind)
    done = run(*command, preload=preload)
    assert (done.code, done.output) == (plain.code, plain.output)
    (line,) = done.screen.splitlines()
    assert f"{program} (process " in line
    assert "nothing intercepted: " in line and says in line
    filed, report = watched(tmp_path, *command, preload=preload)
    assert says in report["nothing_intercepted"]
    assert report["devices"] == []
    assert "nothing intercepted: " in filed.screen


def test_disabled_it_says_and_counts_nothing(tmp_path):
    done = run(PROGRAM, "plain", LOWTIDE_DISABLE=1, LOWTIDE_CUDA_REPORT=tmp_path / "none")
    assert (done.code, done.screen, list(tmp_path.iterdir())) == (0, "", [])


def test_a_sanitized_program_is_left_alone():
    fake = BUILD / "doubles" / "libfake_sanitizer.so"
    done = run(PROGRAM, "plain", preload=(WATCH, fake, RUNTIME, DRIVER))
    (line,) = done.screen.splitlines()
    assert "under the address sanitizer: its CUDA memory is not watched" in line
    assert done.code == 0


# ---- how processes end


@pytest.mark.parametrize(
    ("mode", "code", "complete"),
    [
        ("exit", 3, True),
        ("quick_exit", 3, True),
        ("signal", 4, True),
        ("_exit", 3, True),
        ("kill", -signal.SIGKILL, False),
    ],
)
def test_ends_while_threads_allocate(tmp_path, mode, code, complete):
    done, report = watched(tmp_path, PROGRAM, mode)
    assert done.code == code
    assert report["complete"] == complete
    counted = device(report)
    assert counted["largest_bytes"][0] == 100 * MIB
    assert 100 * MIB <= counted["peak_bytes"] <= 300 * MIB


def test_reports_on_the_screen_are_for_people():
    done = run(PROGRAM, "plain")
    first, *rest = done.screen.splitlines()
    assert re.fullmatch(
        r"lowtide: cuda_memory \(process \d+\): memory that it asked CUDA for", first
    )
    assert "  device 0: peak 25.0 MiB, at most 3 segments; now 8.0 MiB in 1; " in rest[0]
    assert "largest when 25.0 MiB were live: 20.0 3.0 2.0 MiB" in rest[1]
    trouble = run(PROGRAM, "trouble").screen
    assert "1 requests found no memory, the largest of 1048576.0 MiB" in trouble
    assert "1 frees of memory that nobody was seen to allocate" in trouble


def test_a_report_that_cannot_be_written_is_said_once(tmp_path):
    done = run(PROGRAM, "plain", LOWTIDE_CUDA_REPORT=tmp_path / "no" / "where.json")
    (line,) = done.screen.splitlines()
    assert "cannot write" in line and "No such file or directory" in line
    assert done.code == 0


# ---- other processes


def test_forked_children_end_and_say_nothing(tmp_path):
    done, report = watched(tmp_path, PROGRAM, "fork_rounds")
    assert done.output.splitlines()[-1] == "wrong 0"
    assert done.screen == ""
    assert report["complete"] and len(list(tmp_path.iterdir())) == 1


def test_a_forked_child_reports_when_followed(tmp_path):
    _, alone = watched(tmp_path, PROGRAM, "fork_once")
    assert device(alone)["peak_bytes"] == 7 * MIB
    assert len(list(tmp_path.iterdir())) == 1
    _, parent = watched(tmp_path, PROGRAM, "fork_once", LOWTIDE_CUDA_FOLLOW=1)
    assert device(parent)["peak_bytes"] == 7 * MIB
    (path,) = [path for path in tmp_path.iterdir() if path.name != "report.json"]
    child = json.loads(path.read_text())
    assert path.name == f"report.json.{child['process']}"
    assert device(child)["peak_bytes"] == 7 * MIB, "its own, from its beginning on"
    assert child["process"] != parent["process"]


def test_programs_that_it_starts_run_clean_unless_followed(tmp_path):
    done, report = watched(tmp_path, PROGRAM, "exec")
    assert f"preload {RUNTIME}:{DRIVER}\n" in done.output
    assert device(report)["peak_bytes"] == 7 * MIB
    assert len(list(tmp_path.iterdir())) == 1
    followed, _ = watched(tmp_path, PROGRAM, "exec", LOWTIDE_CUDA_FOLLOW=1)
    assert str(WATCH) in followed.output
    reports = [json.loads(path.read_text()) for path in tmp_path.iterdir()]
    # The shell between them has nothing to say.
    assert sorted(device(report)["peak_bytes"] for report in reports) == [7 * MIB, 25 * MIB]


@pytest.fixture
def installed(tmp_path_factory):
    """As on a machine with CUDA: the runtime lies where the linker looks, and is not preloaded."""
    folder = tmp_path_factory.mktemp("cuda")
    (folder / "libcudart.so.13").symlink_to(RUNTIME)
    return {"preload": (WATCH,), "LD_LIBRARY_PATH": folder}


def test_a_program_that_takes_the_place_of_another_is_watched(tmp_path, installed):
    _, report = watched(tmp_path, "env", "A=1", "nice", PROGRAM, "plain", **installed)
    assert (report["program"], device(report)["peak_bytes"]) == ("cuda_memory", 25 * MIB)


def test_launchers_say_that_what_they_start_is_not_watched(tmp_path, installed):
    script = f"{PROGRAM} exec; true"
    done = run("sh", "-c", script, **installed)
    (line,) = done.screen.splitlines()
    assert "sh (process " in line and "nothing intercepted: this process has no CUDA" in line
    assert "--follow" in line
    assert "preload \n" in done.output
    followed, _ = watched(tmp_path, "sh", "-c", script, LOWTIDE_CUDA_FOLLOW=1, **installed)
    assert len(list(tmp_path.iterdir())) == 3, "two with CUDA, and the one that was started first"
    assert "nothing intercepted" in followed.screen


def test_the_process_number_in_a_files_name(tmp_path):
    run(PROGRAM, "fork_once", LOWTIDE_CUDA_FOLLOW=1, LOWTIDE_CUDA_REPORT=tmp_path / "%p.json")
    names = {path.name for path in tmp_path.iterdir()}
    assert len(names) == 2
    for name in names:
        assert name == f"{json.loads((tmp_path / name).read_text())['process']}.json"


# ---- the command


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--follow"], "--follow requires --watch-cuda"),
        (["--report", "x"], "--report requires --watch-cuda"),
        (["--watch-cuda", "--budget", "1GiB"], "--budget"),
        (["--watch-cuda"], "no program to run"),
    ],
)
def test_wrong_use_is_one_line(options, part):
    tail = [] if options == ["--watch-cuda"] else ["--", "true"]
    done = run(BUILD / "bin" / "lowtide", "run", *options, *tail, preload=())
    assert done.code == 2
    (line,) = done.screen.splitlines()
    assert part in line

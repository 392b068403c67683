"""Two projects outside the tree use Lowtide: installed, and as a subfolder. Both build as Debug.

LOWTIDE_BUILD is the folder of the built tree that is installed (default: build/dev).
"""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("LOWTIDE_BUILD", ROOT / "build" / "dev"))
JOBS = os.environ.get("LOWTIDE_JOBS", "2")

PLANNED = """\
ample: 0 dropped, peak 9000
tight: 1 dropped, peak 6000, recompute 100 ns
smallest: 6000
"""


def run(*command, **options):
    """Output of a command; its stderr is the test's message when it fails."""
    done = subprocess.run(
        [str(part) for part in command],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        **options,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-6000:]}"
    return done.stdout


def cache_value(name):
    for line in (BUILD / "CMakeCache.txt").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return line.split("=", 1)[1]
    raise AssertionError(f"{BUILD} has no {name}: build the dev preset first")


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    """A copy of the consumer projects, away from Lowtide's tree."""
    folder = tmp_path_factory.mktemp("outside") / "consumer"
    shutil.copytree(ROOT / "tests" / "consumer", folder)
    return folder


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", BUILD, "--prefix", folder)
    return folder


def build(project, *arguments, targets=("all",)):
    folder = project / "build"
    # What matters of a Debug build is that NDEBUG is not set; debug information is a quarter of its
    # time.
    debug = ("-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O0")
    run("cmake", "-G", "Ninja", "-S", project, "-B", folder, *debug, *arguments)
    run("cmake", "--build", folder, "-j", JOBS, "--target", *targets)
    return folder


def test_installed_package_plans_and_trains(outside, prefix):
    folder = build(outside / "package", f"-DCMAKE_PREFIX_PATH={prefix}")
    assert run(folder / "plan") == PLANNED
    assert run(folder / "train", cwd=folder) == "steps: 3, loss fell\n"
    assert not (folder / "lowtide").exists(), "store = false wrote files"


def test_installed_programs_carry_their_own_library_path(prefix):
    clean = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    assert "frontier" in run(prefix / "bin" / "lowtide", "--help", env=clean)


def test_installed_command_runs_an_untouched_program(prefix, tmp_path):
    command = [prefix / "bin" / "lowtide", "run", "--budget", "1GiB", "--directory", tmp_path, "--"]
    done = subprocess.run(
        [*map(str, command), str(BUILD / "bin" / "plain_train"), "gpt", "7"],
        capture_output=True,
        text=True,
        env={"OMP_NUM_THREADS": "1", "PATH": os.environ["PATH"]},
    )
    assert done.returncode == 0, done.stderr
    assert "lowtide plain_train: 7 steps, phase" in done.stderr
    assert len(list(tmp_path.glob("plain_train-*.trace.json"))) == 1


@pytest.mark.parametrize("library", ["liblowtide_preload.so", "liblowtide_cuda_preload.so"])
def test_preload_libraries_need_the_c_library_only(prefix, library):
    listing = run("readelf", "-d", *prefix.rglob(library))
    needed = [line.split("[")[1] for line in listing.splitlines() if "NEEDED" in line]
    assert needed == ["libc.so.6]"]


def test_installed_headers_leave_torch_out(prefix):
    headers = sorted((prefix / "include" / "lowtide").rglob("*.h"))
    assert (prefix / "include" / "lowtide" / "lowtide.h") in headers
    assert [path for path in headers if "torch/torch.h" in path.read_text()] == []


def test_installed_package_refuses_another_torch(outside, prefix, tmp_path):
    python = tmp_path / "python"
    torch = tmp_path / "site-packages" / "torch"
    python.write_text(f"#!/bin/sh\nprintf '%s\\n' {torch} 2.11.9\n")
    python.chmod(0o755)
    done = subprocess.run(
        [
            "cmake",
            "-S",
            outside / "package",
            "-B",
            tmp_path / "build",
            f"-DCMAKE_PREFIX_PATH={prefix}",
            f"-DLOWTIDE_PYTHON={python}",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    message = " ".join(done.stderr.split())
    assert "was built against torch" in message and "2.11.9" in message


def test_subfolder_plans_without_torch_and_then_trains_with_it(outside):
    project = outside / "subdirectory"
    source = (f"-DLOWTIDE_SOURCE={ROOT}", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
    folder = build(project, *source, "-DLOWTIDE_TORCH=OFF", targets=["plan"])
    assert run(folder / "plan") == PLANNED
    units = json.loads((folder / "compile_commands.json").read_text())
    assert not [unit["file"] for unit in units if "/tests/unit/" in unit["file"]]
    assert not [unit["file"] for unit in units if "NDEBUG" in unit["command"]]

    # Same folder: what has no torch in it is not compiled again.
    python = cache_value("LOWTIDE_PYTHON")
    folder = build(project, *source, "-DLOWTIDE_TORCH=ON", f"-DLOWTIDE_PYTHON={python}")
    assert run(folder / "train", cwd=folder) == "steps: 3, loss fell\n"
    units = json.loads((folder / "compile_commands.json").read_text())
    with_torch = [unit for unit in units if "/torch/include" in unit["command"]]
    assert with_torch
    for unit in with_torch:
        flags = [flag for flag in unit["command"].split() if "NDEBUG" in flag]
        assert flags and flags[-1] == "-DNDEBUG", unit["file"]

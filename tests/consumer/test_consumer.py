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


def build(project, *arguments):
    folder = project / "build"
    run(
        "cmake",
        "-G",
        "Ninja",
        "-S",
        project,
        "-B",
        folder,
        "-DCMAKE_BUILD_TYPE=Debug",
        "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
        *arguments,
    )
    run("cmake", "--build", folder, "-j", JOBS)
    return folder


def test_installed_package_plans_and_trains(outside, prefix):
    folder = build(outside / "package", f"-DCMAKE_PREFIX_PATH={prefix}")
    assert run(folder / "plan") == PLANNED
    assert run(folder / "train", cwd=folder) == "steps: 3, loss fell\n"
    assert not (folder / "lowtide").exists(), "store = false wrote files"


def test_installed_programs_carry_their_own_library_path(prefix):
    clean = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    assert "frontier" in run(prefix / "bin" / "lowtide", "--help", env=clean)


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


def test_subfolder_without_torch_plans(outside):
    folder = build(outside / "subdirectory", f"-DLOWTIDE_SOURCE={ROOT}", "-DLOWTIDE_TORCH=OFF")
    assert run(folder / "plan") == PLANNED
    assert not (folder / "train").exists()
    assert not list(folder.rglob("*_test")), "a user's build must not build Lowtide's tests"


def test_subfolder_with_torch_trains(outside, tmp_path):
    project = tmp_path / "consumer" / "subdirectory"
    shutil.copytree(outside, project.parent, ignore=shutil.ignore_patterns("build"))
    python = cache_value("LOWTIDE_PYTHON")
    folder = build(project, f"-DLOWTIDE_SOURCE={ROOT}", f"-DLOWTIDE_PYTHON={python}")
    assert run(folder / "plan") == PLANNED
    assert run(folder / "train", cwd=folder) == "steps: 3, loss fell\n"
    torch_units = [
        entry
        for entry in json.loads((folder / "compile_commands.json").read_text())
        if "/torch/include" in entry["command"]
    ]
    assert torch_units
    for entry in torch_units:
        flags = [flag for flag in entry["command"].split() if "NDEBUG" in flag]
        assert flags and flags[-1] == "-DNDEBUG", entry["file"]

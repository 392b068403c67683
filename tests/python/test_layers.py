"""The layer check: passes on the tree as it is, fails on a planted breach, and names it."""

import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "check_layers.py"


def check(root):
    return subprocess.run([sys.executable, str(SCRIPT), str(root)], capture_output=True, text=True)


@pytest.fixture
def copy(tmp_path):
    for room in ("src", "hooks", "planner", "profiler"):
        shutil.copytree(ROOT / room, tmp_path / room)
    return tmp_path


def test_the_tree_keeps_its_layers():
    result = check(ROOT)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    "path, line, rule",
    [
        (
            "src/core/planted.h",
            '#include "planner/planner.h"',
            "src/core may include no other room",
        ),
        ("planner/planted.cc", '#include "hooks/ledger.h"', "planner may include src/core, not"),
        (
            "hooks/planted.cc",
            '  #  include "runtime/session.h"',
            "hooks may include src/core, not src/run",
        ),
        ("src/cli/planted.cc", '#include "profiler/cpu_clock.h"', "not profiler"),
        ("src/cli/planted.cc", '#include "runtime/session.h"', "not src/runtime"),
        ("planner/planted.cc", "#include <ATen/core/Tensor.h>", "no torch headers"),
        ("hooks/planted.cc", "#include <c10/core/Allocator.h>", "no torch headers outside torch_*"),
        ("src/core/planted.cc", "#include <cuda_runtime_api.h>", "no CUDA headers"),
        ("src/runtime/session.h", "#include <torch/torch.h>", "public headers do not include"),
        (
            "hooks/torch_planted.h",
            "#include <ATen/record_function.h>",
            "public headers do not include",
        ),
        ("src/runtime/planted.cc", '#include "tests/support/x.h"', "must not include tests"),
    ],
)
def test_a_planted_breach_is_named_with_file_and_line(copy, path, line, rule):
    file = copy / path
    before = file.read_text() if file.exists() else ""
    file.write_text(before + "// first line\n" + line + "\n")
    result = check(copy)
    assert result.returncode == 1
    number = (before + "// first line\n").count("\n") + 1
    assert f"{path}:{number}: " in result.stderr
    assert rule in result.stderr


@pytest.mark.parametrize(
    "path, line",
    [
        ("hooks/torch_planted.cc", "#include <c10/core/Allocator.h>"),
        ("src/runtime/planted.cc", "#include <torch/torch.h>"),
        ("src/runtime/planted.cc", '#include "planner/planner.h"'),
        ("planner/planted.cc", '// #include "hooks/ledger.h"'),
    ],
)
def test_what_a_room_may_do_passes(copy, path, line):
    (copy / path).write_text(line + "\n")
    assert check(copy).returncode == 0, check(copy).stderr


def test_a_new_room_must_be_entered_in_the_table(copy):
    (copy / "src" / "shed").mkdir()
    (copy / "src" / "shed" / "a.h").write_text("#pragma once\n")
    result = check(copy)
    assert result.returncode == 1
    assert "src/shed: not a room" in result.stderr


def test_a_folder_without_sources_is_refused(tmp_path):
    assert check(tmp_path).returncode == 1


def test_a_breach_fails_the_build(copy, tmp_path_factory):
    for name in ("scripts", "tests"):
        shutil.copytree(ROOT / name, copy / name)
    shutil.copy(ROOT / "CMakeLists.txt", copy)
    build = tmp_path_factory.mktemp("build")
    configure = [
        "cmake",
        "-G",
        "Ninja",
        "-S",
        copy,
        "-B",
        build,
        "-DLOWTIDE_TORCH=OFF",
        "-DLOWTIDE_TESTS=OFF",
        "-DLOWTIDE_PROGRAMS=OFF",
    ]
    subprocess.run(configure, check=True, capture_output=True)
    layers = ["cmake", "--build", build, "--target", "lowtide_layers"]
    assert subprocess.run(layers, capture_output=True).returncode == 0
    (copy / "src" / "core" / "planted.h").write_text('#include "hooks/ledger.h"\n')
    done = subprocess.run(layers, capture_output=True, text=True)
    assert done.returncode != 0
    assert "src/core/planted.h:1: src/core may include no other room, not hooks" in done.stdout

"""Cases that hurt people elsewhere (the name of a test has the case's number), on CUDA memory: real
torch over the CUDA double, with each of our doors. tests/field has those that need no CUDA."""

import pathlib
import re

import cuda_double
import pytest
from test_watch_cuda import PROGRAM, WATCH
from test_watch_cuda import run as watched

HERE = pathlib.Path(__file__).resolve().parent
BUILD = cuda_double.BUILD
MIB = 1 << 20
GIB = 1 << 30


class Process(cuda_double.Cases):
    def __init__(self, mode):
        super().__init__(
            cuda_double.run(
                HERE / "field_cuda_program.py",
                mode,
                watched_by=WATCH,
                MEMORY=4 * GIB,
                DEVICES=2,
                QUIET=1,
            )
        )
        self.code, self.screen = self.finished.returncode, self.finished.stderr


@pytest.fixture(scope="module")
def process():
    """What ran of each mode; each runs once."""
    done = {}
    return lambda mode: done.get(mode) or done.setdefault(mode, Process(mode))


def test_f45_the_budget_holds_what_side_streams_reserve(process):
    case = process("a")("f45_side_streams")
    assert case["free_running"]["reserved"] >= 2 * case["free_running"]["live"] * 0.9
    assert case["largest"] <= case["limit"]
    assert re.search(r"live [\d.]+ MiB in \d+ blocks, reserved [\d.]+ MiB", case["message"])


def test_f46_one_huge_tensor_finds_its_place_in_each_step(process):
    case = process("a")("f46_one_huge_tensor")
    assert case["failed"] == 0
    assert case["largest"] <= case["budget"]
    assert case["reserved"] >= case["live"], "both are told: the difference is fragmentation"


def test_f53_whatever_the_order_there_is_one_clear_error_and_the_process_lives(process):
    case = process("late")("f53_order")
    assert case["available"]
    assert "Can't swap an already initialized allocator" in case["b"]
    assert case["a"] == "returned None", "door A goes in at any time"
    assert "installed already. Fix: install it once" in case["twice"]
    assert case["first"] == case["still"] == case["after"] == MIB
    early = process("a")
    assert early.code == 0 and early.cases, "before CUDA was in use"
    again = process("b")("twice")
    assert "Can't swap an already initialized allocator" in again["again"]
    assert again["still"] == MIB


def test_f54_four_calls_work_or_are_refused_as_documented(process):
    a, b = process("a")("f54_four_calls"), process("b")("f54_four_calls")
    assert a["out_of_memory"].startswith("OutOfMemoryError: CUDA out of memory")
    assert a["max_memory_allocated"].startswith("returned ")
    assert (
        a["checkPoolLiveAllocations"].startswith("returned ")
        or "pool" in (a["checkPoolLiveAllocations"])
    )
    assert b["out_of_memory"].startswith("OutOfMemoryError: Lowtide: cannot allocate 20.0 MiB")
    documented = (HERE.parents[1] / "hooks" / "DOORS.md").read_text()
    for call in ("max_memory_allocated", "checkPoolLiveAllocations"):
        assert "does not yet support" in b[call]
        assert re.search(rf"^\| `{call}` \| raises", documented, re.MULTILINE)
    assert "`cudnn.benchmark`" in documented


@pytest.mark.parametrize("door", ["a", "b"])
def test_f55_a_block_keeps_its_device_and_its_stream(process, door):
    case = process(door)("f55_devices_and_streams")
    assert case["grown"][0] == 0 and case["grown"][1] > 0
    assert not case["elsewhere"]
    assert case["left"] == 0


@pytest.mark.parametrize("door", ["a", "b"])
def test_f56_what_kernels_still_use_is_not_handed_out(process, door):
    assert process(door)("f56_freed_while_kernels_run") == {"misuse": 0, "first": ""}


@pytest.mark.parametrize("door", ["a", "b", "late"])
def test_f57_tensors_that_live_at_the_end(process, door):
    assert process(door)("f57_ends") == {"kept": 2}
    assert process(door).code == 0
    (first, *rest) = process(door).screen.splitlines()
    assert "memory that it asked CUDA for" in first, "the report, and nothing else"
    assert all(line.startswith("  ") for line in rest)


def test_f58_history_with_python_stacks_in_many_threads(process):
    case = process("a")("f58_history_with_stacks")
    assert case["hung"] == 0
    assert case["entries"] > 4000
    assert case["wrong"] == {}


def test_f59_forked_workers_end_and_say_nothing(process):
    assert process("a")("f59_forks") == {"wrong": 0}
    assert process("a").screen.count("lowtide") == 1, "one report, the parent's"


def test_f60_a_hidden_runtime_is_said_and_0_bytes_are_a_request():
    driver = BUILD / "doubles" / "liblone_driver.so"
    hidden = watched(BUILD / "bin" / "cuda_memory_static", "plain", preload=(WATCH, driver))
    assert hidden.code == 0
    (line,) = hidden.screen.splitlines()
    assert "nothing intercepted: " in line and "Fix: link it as a shared library" in line
    seen = watched(PROGRAM, "plain")
    assert seen.code == 0
    assert "cudaMalloc 0: 0" in seen.output, "asked before main, too"
    assert "4 allocations" in seen.screen

"""Door A over the CUDA double: torch's native allocator decorated must be told from it by nothing.

`door_a_program.py` runs twice, without and with the door. Each case of it is a row of the feature
table that the double can tell (FEATURES), or of the budget, which only the door has. Figures of
both runs are equal, and the door's ledger equals torch's statistics to the byte. Models train with
cuDNN off: it is not doubled. Compiled training: test_compile.py.

What the double cannot tell, and only a GPU can: IPC between processes, cudnn.benchmark (cacheInfo),
NCCL's registration of segments, events that really take time. These are rows of
scripts/device-check (scripts/device_door_a.py). Peer access takes two GPUs: nothing tests it.
"""

import importlib.util
import pathlib
import re
import subprocess
import sys

import cuda_double
import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MIB = 1 << 20

# The feature table: what torch's native allocator gives, and the cases that show it with the door.
FEATURES = {
    "training": ["train_gpt", "train_unet"],
    "streams, record_stream, events": ["record_stream"],
    "split and merge, small and large pools": ["split_and_merge"],
    "expandable segments": ["expandable_segments"],
    "graphs' private pools": ["graph"],
    "graph trees": ["graph_tree_calls", "graph_trees"],
    "MemPool, of a custom allocator too": ["mem_pool", "mem_pool_of_another_allocator"],
    "statistics, peak reset": ["peaks"],
    "snapshot, history, memory_viz": ["snapshot_and_history"],
    "annotations": ["metadata"],
    "OutOfMemoryError, retry, observers": ["out_of_memory"],
    "empty_cache, fraction": ["empty_cache_and_fraction"],
    "memory events of the profiler": ["profiler"],
    "raw blocks, caching off": ["raw_calls"],
    "chosen addresses": ["given_address"],
    "several devices": ["devices"],
    "installation after first use": ["reinstall", "install_under_threads"],
}
COMMON = [name for names in FEATURES.values() for name in names]
# What only a GPU can tell: rows of scripts/device-check.
ON_A_DEVICE = ["record_stream", "ipc", "cudnn_benchmark", "nccl"]


def arm(name):
    return cuda_double.Cases(cuda_double.run(HERE / "door_a_program.py", name, DEVICES=2))


@pytest.fixture(scope="module")
def native():
    return arm("native")


@pytest.fixture(scope="module")
def door():
    return arm("door")


def test_what_the_double_cannot_tell_is_a_row_of_the_device_check():
    rows = (ROOT / "scripts" / "device-check").read_text()
    rows = re.search(r"^DOOR_CASES = \((.*)\)$", rows, re.MULTILINE)[1].replace('"', "")
    assert set(ON_A_DEVICE) <= set(rows.split(", "))
    program = (ROOT / "scripts" / "device_door_a.py").read_text()
    assert f"\nCASES = [{rows}]\n" in program, "each row has its program"


@pytest.mark.parametrize("name", COMMON)
def test_the_ledger_equals_torchs_statistics(door, name):
    case = door(name)
    assert case["disagreement"] == {}
    assert case.get("wrong", {}) == {}
    assert case.get("wrong_after_install", {}) == {}


@pytest.mark.parametrize("name", [name for name in COMMON if name != "record_stream"])
def test_the_program_cannot_tell(native, door, name):
    own = ("wrong_after_install", "message")
    plain, decorated = (
        {k: v for k, v in arm(name).items() if k not in own} for arm in (native, door)
    )
    assert decorated == plain


def test_nothing_was_misused_or_missing(native, door):
    native.assert_clean()
    door.assert_clean()


@pytest.mark.parametrize("name", ["train_gpt", "train_unet"])
def test_training_makes_the_same_requests_and_the_sink_hears_them(native, door, name):
    plain, decorated = native(name), door(name)
    assert len(plain["requests"]) > 1000
    assert decorated["requests"] == plain["requests"]
    assert decorated["heard"] == plain["requests"]
    assert decorated["streams"] == 1
    assert len(plain["stats"]) == 4
    assert decorated["stats"] == plain["stats"]


def test_record_stream_makes_its_events_whoever_made_the_block(native, door):
    good = {"events": 1, "given_again_too_early": False}
    assert native("record_stream")["uses"] == {"plain": good}
    assert door("record_stream")["uses"] == {
        "plain": good,
        "made_without_the_door": good,
        "made_with_the_door": good,
    }
    assert native("record_stream")["five"] == door("record_stream")["five"] == 5


def test_the_rows_are_about_what_they_say(door):
    """A row that compares nothing would pass."""
    pools = [size for _, size, _ in door("split_and_merge")["segments"]]
    assert {20 * MIB, 2 * MIB} <= set(pools)
    assert door("expandable_segments")["mapped"] == 3
    assert door("graph")["copied"] == 7 and door("graph")["captured"] == 0
    assert door("graph")["pools"] == [False, True]
    calls = door("graph_tree_calls")
    assert calls["standard"] == calls["owned"] == [True] * 3
    assert calls["as_expected"] and calls["restored"] and not calls["not_expected"]
    assert calls["blocks"][1] - calls["blocks"][0] == 3
    assert door("graph_trees")["graphs"][-1] == 2, "forward and backward"
    assert door("mem_pool")["segments"] == [20 * MIB]
    assert door("mem_pool_of_another_allocator")["held"] == 20 * MIB
    assert door("mem_pool_of_another_allocator")["left"] == 0
    assert door("peaks")["high"] - door("peaks")["low"] == 10 * MIB
    assert door("peaks")["counted"] == 1 and door("peaks")["reset"] == 0
    assert door("peaks")["accelerator"]
    assert door("snapshot_and_history")["python_frames"]
    assert door("snapshot_and_history")["blocks"] == [3 * MIB]
    assert door("out_of_memory")["observed"] == [[0, 20 * MIB]]
    assert door("empty_cache_and_fraction")["refused"]
    assert door("empty_cache_and_fraction")["fraction"] == 100
    assert sum(size for _, size in door("profiler")["events"]) == 0
    assert door("profiler")["events"]
    assert door("raw_calls")["stats"]["requested_bytes.all.current"] >= 5 * MIB
    assert door("raw_calls")["backend"] == "native"
    assert door("devices")["blocks"] == 1


def test_out_of_memory_is_torchs_error_with_our_account(native, door):
    plain, ours = native("out_of_memory"), door("out_of_memory")
    assert ours["kind"] == "OutOfMemoryError"
    assert plain["message"] in ours["message"]
    # torch 2.11 keeps workspaces of cuBLAS besides.
    assert re.search(r"\(Lowtide: budget none, live 40\.0 MiB in \d blocks, ", ours["message"])
    assert "largest holders: 1 x 40.0 MiB" in ours["message"]
    assert "Lowtide" not in plain["message"]


def test_the_limit_holds_to_the_byte_and_its_error_says_why(door):
    budget = door("budget")
    assert budget["alone"].startswith("CUDA out of memory. Tried to allocate 60.00 MiB")
    assert "largest holders: 1 x 60.0 MiB" in budget["alone"]
    assert budget["alone_failures"] == 1
    assert budget["fits_exactly"] == 40 * MIB
    assert budget["one_byte_less"]
    assert budget["over"] <= 0, "by the double's own count"
    assert budget["without"] == 200 * MIB
    assert budget["fraction"] == 1, "what the user set"


def test_the_handler_is_asked_before_the_error(door):
    budget = door("budget")
    # 100 MiB; 60 are live, what was cached has been given back.
    assert budget["asked"] == [[40 * MIB, 80 * MIB]]
    assert budget["freed"] == 80 * MIB
    assert budget["cached_first"] == [90 * MIB, 0], "cached blocks go first, nobody is asked"
    assert "Tried to allocate 200.00 MiB" in budget["inside"], "the handler does not ask itself"
    assert budget["ooms"] == 1, "only the request inside the handler failed"
    assert budget["last"].startswith("CUDA out of memory. Tried to allocate 102.00 MiB")
    assert budget["last_asked"] == [[2 * MIB, 101 * MIB]]
    assert budget["last_ooms"] == 1
    assert budget["stats"] == {
        "limit_hits": 3,
        "pressure_calls": 2,
        "pressure_bytes": 60 * MIB,
    }


def test_the_handler_is_asked_when_the_device_is_full(door):
    case = door("pressure_of_the_device")
    assert case["got"] == 30 * MIB
    assert case["asked"] == [[30 * MIB, 30 * MIB], [60 * MIB, 60 * MIB]]
    assert "Lowtide: budget none" in case["message"]


def test_nobody_is_asked_while_a_graph_is_captured(door):
    case = door("budget_in_a_capture")
    assert case["asked"] == [] and case["frees"] == 0
    assert "CUDA out of memory" in case["message"] and "Lowtide: budget" in case["message"]


def test_bad_input_is_refused_in_one_line(door):
    case = door("bad_input")
    assert "installed already" in case["twice"]
    assert "no CUDA device 7" in case["no_device"] and "Fix: use 0 to 1" in case["no_device"]
    assert "a limit of 0 bytes" in case["no_limit"]
    assert "no CUDA device -1" in case["stats_of_no_device"]
    assert "invalid device pointer" in case["unknown_pointer"]["said"]
    assert case["unknown_pointer"]["frees"] == 0
    assert case["still_there"]


PLUGGABLE = """
import torch
from door_a import Door, Recorder, Refused
def pluggable():
    return torch.cuda.memory.CUDAPluggableAllocator(
        str(Recorder().path), "recorder_malloc", "recorder_free")
def refusal(call):
    try:
        call()
    except Refused as error:
        return str(error)
"""


def run(body, **settings):
    """A small program of its own over the double; its last line."""
    program = f"import sys; sys.path.insert(0, {str(HERE)!r})\n" + body
    environment = cuda_double.environment(**settings)
    return last_line(program, environment)


def last_line(program, environment):
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()[-1]


def test_after_a_foreign_allocator_it_is_refused_and_the_program_runs():
    said = run(
        PLUGGABLE
        + "torch.cuda.memory.change_current_allocator(pluggable())\n"
        + "text = refusal(Door().install)\n"
        + "kept = torch.zeros(5, device='cuda')\n"
        + "print(text, kept.numel(), Recorder().pool_bytes() > 0)"
    )
    assert "this process uses 'pluggable'" in said
    assert said.endswith("5 True")


def test_a_foreign_allocator_that_came_later_is_left_in_place():
    said = run(
        PLUGGABLE
        + "door = Door(); door.install()\n"
        + "torch.cuda.memory.change_current_allocator(pluggable())\n"
        + "text = refusal(door.uninstall)\n"
        + "kept = torch.zeros(5, device='cuda')\n"
        + "print(text, kept.numel(), Recorder().pool_bytes() > 0)"
    )
    assert "another CUDA allocator ('pluggable') was installed after Lowtide's" in said
    assert said.endswith("5 True")


def test_before_cuda_is_in_use_settings_are_kept_for_then():
    said = run(
        PLUGGABLE
        + "door = Door(); door.install(); door.set_limit(64 << 20)\n"
        + "assert not torch.cuda.is_initialized()\n"
        + "torch.zeros(5, device='cuda')\n"
        + "try:\n    torch.empty(80 << 20, dtype=torch.uint8, device='cuda')\n"
        + "except torch.OutOfMemoryError as error:\n"
        + "    print(str(error).replace(chr(10), ' '), door.stats()['blocks']['current'])"
    )
    assert "Lowtide: budget 64.0 MiB" in said
    assert said.endswith(" 0") or said.endswith(" 1")


def test_the_asynchronous_backend_is_refused_by_name():
    environment = cuda_double.environment()
    environment["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"
    program = f"import sys; sys.path.insert(0, {str(HERE)!r})\n" + PLUGGABLE
    said = last_line(program + "print(refusal(Door().install))", environment)
    assert "'cudaMallocAsync'" in said and "take backend:cudaMallocAsync out of" in said


def test_without_a_gpu_it_is_harmless():
    """torch's CUDA libraries, no device: what a CPU job on a GPU build of torch has."""
    environment = cuda_double.environment()
    del environment["LD_PRELOAD"]
    program = f"import sys; sys.path.insert(0, {str(HERE)!r})\n" + PLUGGABLE
    said = last_line(
        program
        + "door = Door(); door.install()\n"
        + "weight = torch.ones(3, requires_grad=True); (weight * 2).sum().backward()\n"
        + "figures = door.stats(); door.uninstall()\n"
        + "print(weight.grad.sum().item(), figures['reserved_bytes']['current'])",
        environment,
    )
    assert said == "6.0 0"


@pytest.mark.parametrize(
    ("before", "says"),
    [
        ("", "there is no torch in this process"),
        ("ctypes.CDLL({double!r})", "this process uses torch 2.12, Lowtide's CUDA allocator was"),
    ],
    ids=["none", "another"],
)
def test_another_torch_is_refused_by_name(before, says):
    double = cuda_double.BUILD / "doubles" / "libtorch_cpu.so"
    program = (
        f"import ctypes, sys; sys.path.insert(0, {str(HERE)!r})\n"
        + "from door_a import Door, Refused\n"
        + before.format(double=str(double))
        + "\ntry:\n    Door().install()\nexcept Refused as error:\n    print(error)"
    )
    environment = cuda_double.environment()
    del environment["LD_PRELOAD"]
    assert says in last_line(program, environment)


def virtual_functions(text):
    text = re.sub(r"//.*", "", text)
    return set(re.findall(r"virtual\s[^;{=]*?\b(\w+)\s*\(", text)) - {"Allocator"}


def test_every_virtual_function_is_passed_on():
    """Those with a default too: a function that a later torch adds must be looked at."""
    torch = pathlib.Path(importlib.util.find_spec("torch").origin).parent / "include" / "c10"
    allocator = (torch / "core" / "Allocator.h").read_text()
    allocator = allocator[allocator.index("struct C10_API Allocator {") :]
    allocator = allocator[: allocator.index("\n};")]
    device = (torch / "core" / "CachingDeviceAllocator.h").read_text()
    device = device[device.index("struct C10_API DeviceAllocator") :]
    cuda = (torch / "cuda" / "CUDACachingAllocator.h").read_text()
    cuda = cuda[cuda.index("class CUDAAllocator") :]
    asked = set.union(*map(virtual_functions, (allocator, device, cuda)))
    ours = (ROOT / "hooks" / "torch_cuda_forwarding.h").read_text()
    passed_on = set(re.findall(r"native_->(\w+)\(", ours))
    assert len(asked) > 40
    assert asked - passed_on == set()

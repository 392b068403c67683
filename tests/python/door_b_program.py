"""What test_door_b.py runs over the double: torch with Lowtide's C functions as its allocator.

`door_b_program.py native` trains with torch's own allocator, for comparison; `door` with ours in
its place; `pool` with ours behind a MemPool of torch's own. Each case prints one JSON line; the
test judges.
"""

import ctypes
import sys

import door_b
import torch
from cuda_double import run_case
from cuda_double_program import MIB, NEVER, double
from door_b import LIBRARY, hooks
from training import History, gpt, record_steps, unet


def native_stats(device=0):
    return torch.cuda.memory_stats(device)


def trained(training, requests, stats, reset_peaks):
    def reset():
        reset_peaks()
        double.reset_largest()

    def figures():
        return {
            "stats": stats(),
            "bytes": double.bytes(),
            "largest_bytes": double.largest_bytes(),
            "mallocs": double.calls("cudaMalloc"),
            "frees": double.calls("cudaFree"),
        }

    recorded = record_steps(training, 4, requests, figures, reset)
    live = sum(t.untyped_storage().nbytes() for t in training.model.parameters())
    return {"requests": recorded["requests"], "steps": recorded["stats"], "parameters": live}


def trainings(*how):
    return {
        "train_gpt": lambda: trained(gpt(), *how),
        "train_unet": lambda: trained(unet(), *how),
    }


def out_of_memory():
    torch.cuda.empty_cache()
    before = double.bytes()
    total = torch.cuda.mem_get_info()[1]
    double.set_memory(before + 50 * MIB)
    kept = torch.empty(40 * MIB, dtype=torch.uint8, device="cuda")
    try:
        torch.empty(20 * MIB, dtype=torch.uint8, device="cuda")
        kind, message = "", ""
    except torch.OutOfMemoryError as error:
        kind, message = type(error).__name__, str(error)
    del kept
    after = torch.empty(45 * MIB, dtype=torch.uint8, device="cuda")  # in place of what was cached
    double.set_memory(total)
    return {
        "kind": kind,
        "message": message,
        "after": after.numel(),
        "ooms": door_b.stats()["num_ooms"],
    }


def limit():
    torch.cuda.empty_cache()
    held = double.bytes()
    hooks.lowtide_set_memory_limit(ctypes.c_int64(held + 30 * MIB), 0)
    blocks = []
    try:
        for _ in range(100):
            blocks.append(torch.empty(3 * MIB, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError as error:
        message = str(error)
    hooks.lowtide_set_memory_limit(ctypes.c_int64(-1), 0)
    return {"blocks": len(blocks), "message": message, "grown": double.bytes() - held}


def fraction():
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(0.25)
    quarter = door_b.stats()["lowtide.limit_bytes"]
    torch.cuda.set_per_process_memory_fraction(1.0)
    return {"total": total, "quarter": quarter, "all": door_b.stats()["lowtide.limit_bytes"]}


def unknown_pointers():
    frees = double.calls("cudaFree")
    host = ctypes.create_string_buffer(64)
    before = door_b.stats()["lowtide.invalid_frees"]
    for address in (ctypes.addressof(host), 0x1234, torch.empty(8, device="cuda").data_ptr() + 512):
        hooks.lowtide_free(ctypes.c_void_p(address), ctypes.c_ssize_t(64), 0, None)
    return {
        "counted": door_b.stats()["lowtide.invalid_frees"] - before,
        "frees": double.calls("cudaFree") - frees,
    }


def record_stream():
    side = torch.cuda.Stream()
    torch.cuda.empty_cache()

    def place_after(record):
        block = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
        address = block.data_ptr()
        double.set_delay(NEVER)
        with torch.cuda.stream(side):
            block.zero_()
        if record:
            block.record_stream(side)
        before = double.calls("cudaEventRecord")
        del block
        recorded = double.calls("cudaEventRecord") - before
        double.set_delay(0)
        during = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda").data_ptr() == address
        double.advance(NEVER)
        after = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda").data_ptr() == address
        torch.cuda.synchronize()
        return {"events": recorded, "during": during, "after": after}

    return {"recorded": place_after(True), "plain": place_after(False)}


def graph():
    source = torch.zeros(1 << 20, device="cuda")
    recorded = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(recorded):
        inside = source + 1
    address = inside.data_ptr()
    del inside
    others = [torch.empty(1 << 20, device="cuda") for _ in range(4)]
    shared = any(other.data_ptr() == address for other in others)
    recorded.replay()
    held = double.bytes()
    del recorded, others, source
    torch.cuda.empty_cache()
    return {"shared": shared, "given_back": held - double.bytes()}


def devices():
    before = double.bytes(1)
    there = torch.zeros(1000, device="cuda:1")
    return {
        "double": double.bytes(1) - before,
        "reserved": door_b.stats(1)["reserved_bytes.all.current"],
        "requested": door_b.stats(1)["requested_bytes.all.current"],
        "numel": there.numel(),
    }


def answers():
    """What torch itself says to each call that a pluggable allocator may not serve."""
    memory = torch.cuda.memory

    def said(call):
        try:
            result = call()
        except Exception as error:
            return f"{type(error).__name__}: {str(error).splitlines()[0]}"
        return f"returned {result!r:.60}"

    calls = {
        "memory_allocated": torch.cuda.memory_allocated,
        "max_memory_allocated": torch.cuda.max_memory_allocated,
        "memory_reserved": torch.cuda.memory_reserved,
        "memory_stats": torch.cuda.memory_stats,
        "memory_summary": torch.cuda.memory_summary,
        "reset_peak_memory_stats": torch.cuda.reset_peak_memory_stats,
        "reset_accumulated_memory_stats": torch.cuda.reset_accumulated_memory_stats,
        "memory_snapshot": torch.cuda.memory_snapshot,
        "_record_memory_history": memory._record_memory_history,
        "get_per_process_memory_fraction": torch.cuda.get_per_process_memory_fraction,
        "MemPool": lambda: torch.cuda.MemPool() and None,
        "checkPoolLiveAllocations": lambda: torch._C._cuda_checkPoolLiveAllocations(
            0, (0, 1), set()
        ),
        "share_cuda": lambda: torch.zeros(8, device="cuda").untyped_storage()._share_cuda_(),
        "attach_out_of_memory_observer": lambda: torch._C._cuda_attach_out_of_memory_observer(
            lambda *_: None
        ),
        "getCheckpointState": lambda: torch._C._cuda_getCheckpointState(0, (0, 1)),
        "change_current_allocator": door_b.install,
        "caching_allocator_enable": lambda: torch.cuda.memory.caching_allocator_enable(True),
        "accelerator.memory_stats": torch.accelerator.memory_stats,
        "empty_cache": torch.cuda.empty_cache,
    }
    return {name: said(call) for name, call in calls.items()}


def profiler():
    """Memory events of torch's profiler, without CUPTI."""
    with torch.autograd.profiler_legacy.profile(profile_memory=True) as profile:
        torch.zeros(1000, device="cuda")
    return {"events": [e.name for e in profile.function_events if e.device_memory_usage]}


def expandable_segments():
    torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
    block = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
    torch._C._accelerator_setAllocatorSettings("expandable_segments:False")
    return {"mapped": double.calls("cuMemMap"), "numel": block.numel()}


def pool():
    """Ours behind torch's own: torch's figures and features stay, segments come from us."""
    pluggable = torch.cuda.memory.CUDAPluggableAllocator(
        LIBRARY, "lowtide_malloc_or_null", "lowtide_free"
    )
    mine = torch.cuda.MemPool(pluggable.allocator())
    with torch.cuda.use_mem_pool(mine):
        inside = torch.zeros(3 * MIB, dtype=torch.uint8, device="cuda")
    ours = door_b.stats()
    outside = torch.zeros(3 * MIB, dtype=torch.uint8, device="cuda")
    result = {
        "requested": ours["requested_bytes.all.current"],
        "native": native_stats()["allocated_bytes.all.current"],
        "numel": inside.numel() + outside.numel(),
    }
    del inside, mine
    torch.cuda.empty_cache()
    result["left"] = door_b.stats()["requested_bytes.all.current"]
    return result


def main(mode):
    torch.backends.cudnn.enabled = False
    torch.manual_seed(0)
    if mode == "native":
        cases = trainings(History(), native_stats, torch.cuda.reset_peak_memory_stats)
    elif mode == "pool":
        cases = {"pool": pool}
    else:
        requests = door_b.Forwarded()
        door_b.install(requests.recorder.path, "recorder_")
        cases = {
            **trainings(requests, door_b.stats, door_b.reset_peaks),
            "out_of_memory": out_of_memory,
            "limit": limit,
            "fraction": fraction,
            "unknown_pointers": unknown_pointers,
            "record_stream": record_stream,
            "graph": graph,
            "devices": devices,
            "profiler": profiler,
            "expandable_segments": expandable_segments,
            "answers": answers,
        }
    cases["end"] = double.verdict
    for name, case in cases.items():
        run_case(name, case)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

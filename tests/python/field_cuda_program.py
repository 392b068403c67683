"""What test_field_cuda.py runs over the double: cases that hurt people elsewhere, on our doors.

`field_cuda_program.py a` has door A in torch's native allocator, `b` our C functions in its place,
`late` comes to a process whose CUDA is in use already. Each case prints one JSON line.
"""

import atexit
import ctypes
import gc
import os
import sys
import threading

import door_b
import torch
from cuda_double import Double, run_case
from door_a import NO_LIMIT, Door

MIB = 1 << 20
double = Double()


def block(mib, device="cuda"):
    return torch.empty(int(mib * MIB), dtype=torch.uint8, device=device)


def said(call):
    try:
        return f"returned {call()!r:.60}"
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"


# ---- on both doors


def f54_four_calls():
    free, total = torch.cuda.mem_get_info()
    double.set_memory(total - free + 10 * MIB)
    answers = {
        "out_of_memory": said(lambda: block(20)),
        "max_memory_allocated": said(torch.cuda.max_memory_allocated),
        "checkPoolLiveAllocations": said(
            lambda: torch._C._cuda_checkPoolLiveAllocations(0, (0, 1), set())
        ),
    }
    double.set_memory(total)
    return answers


def f55_devices_and_streams():
    """Blocks of device 1, freed while device 0 and another stream are current."""
    before = [double.bytes(0), double.bytes(1)]
    side = torch.cuda.Stream(1)
    with torch.cuda.stream(side):
        kept = [block(3, "cuda:1") for _ in range(4)]
    grown = [double.bytes(0) - before[0], double.bytes(1) - before[1]]
    address = kept[-1].data_ptr()
    with torch.cuda.device(0), torch.cuda.stream(torch.cuda.Stream(0)):
        kept.clear()
        elsewhere = block(3, "cuda:1").data_ptr() == address  # not of the block's stream
    with torch.cuda.stream(side):
        again = [block(3, "cuda:1").data_ptr() for _ in range(1)]
    torch.cuda.empty_cache()
    return {
        "grown": grown,
        "elsewhere": elsewhere,
        "again": len(again),
        "left": double.bytes(1) - before[1],
    }


def f56_freed_while_kernels_run():
    side = torch.cuda.Stream()
    double.set_delay(500)
    for i in range(200):
        value = torch.randn(MIB // 4 * (1 + i % 3), device="cuda")
        if i % 4 == 0:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                value.mul_(2)
            value.record_stream(side)
        del value
    seen = {"misuse": double.misuse(), "first": double.first_misuse()}
    torch.cuda.synchronize()
    double.set_delay(0)
    return seen


# ---- door A


def f45_side_streams():
    """Blocks are cached per stream: what is reserved is far more than what is live."""
    side = torch.cuda.Stream()

    def step():
        for stream in (torch.cuda.current_stream(), side):
            with torch.cuda.stream(stream):
                kept = [block(4) for _ in range(10)]
                del kept

    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_reserved()
    step()
    figures = door.stats()
    free_running = {
        "live": figures["live_bytes"]["peak"],
        "reserved": figures["reserved_bytes"]["peak"],
    }
    torch.cuda.empty_cache()
    limit = held + 60 * MIB
    door.set_limit(limit)
    double.reset_largest()
    for _ in range(5):
        step()
    largest = double.largest_bytes()
    door.set_limit(held + 30 * MIB)
    message = said(lambda: [block(4) for _ in range(10)])
    door.set_limit(NO_LIMIT)
    return {"free_running": free_running, "largest": largest, "limit": limit, "message": message}


def f46_one_huge_tensor():
    """60 % of the budget in one tensor, of another length each step, among many of about 1 %."""
    torch.cuda.empty_cache()
    budget = 200 * MIB
    held = torch.cuda.memory_reserved()
    door.set_limit(held + budget)
    double.reset_largest()
    failed = 0
    for step in range(10):
        small = [block(1.5 + i % 5 / 2) for i in range(20)]
        try:
            huge = block(120 - step)
            del huge
        except torch.OutOfMemoryError:
            failed += 1
        small += [block(2) for _ in range(8)]
        del small
    figures = door.stats()
    largest = double.largest_bytes()
    door.set_limit(NO_LIMIT)
    torch.cuda.empty_cache()
    return {
        "failed": failed,
        "largest": largest - held,
        "budget": budget,
        "live": figures["live_bytes"]["peak"],
        "reserved": figures["reserved_bytes"]["peak"],
    }


def f58_history_with_stacks():
    """The native allocator takes the GIL for stacks; a ledger that held a lock then would hang."""
    torch.cuda.memory._record_memory_history(context="all", stacks="python")
    done = threading.Event()

    def churn(seed):
        kept = []
        for i in range(300):
            kept.append(block(0.01 * (1 + (i * seed) % 50)))
            if len(kept) > 10:
                kept.pop(i % 7)

    def collect():
        while not done.is_set():
            cycle = [block(0.1)]
            cycle.append(cycle)
            del cycle
            gc.collect()

    threads = [threading.Thread(target=churn, args=(seed,)) for seed in range(1, 9)]
    collector = threading.Thread(target=collect)
    for thread in [*threads, collector]:
        thread.start()
    for thread in threads:
        thread.join(60)
    hung = sum(thread.is_alive() for thread in threads)
    done.set()
    collector.join(60)
    entries = len(torch.cuda.memory._snapshot()["device_traces"][0])
    torch.cuda.memory._record_memory_history(enabled=None)
    torch.cuda.empty_cache()
    return {"hung": hung + collector.is_alive(), "entries": entries, "wrong": disagreement()}


def disagreement():
    wrong = door.disagreement(torch.cuda.memory_stats())
    # Peaks and counts begin with the installation.
    return {name: pair for name, pair in wrong.items() if not name.endswith(("peak", "_calls"))}


def f59_forks():
    """Data loaders' workers, while a thread allocates all the time; Lowtide is preloaded too."""
    done = threading.Event()

    def churn():
        kept = []
        while not done.is_set():
            kept.append(block(0.5))
            if len(kept) > 20:
                kept.pop(3)

    thread = threading.Thread(target=churn)
    thread.start()
    wrong = 0
    for _ in range(25):
        workers = []
        for number in range(4):
            child = os.fork()
            if child == 0:
                code = 0 if door.library.lowtide_cuda_installed() == 1 else 1
                if number % 2:
                    os._exit(code)
                ctypes.CDLL(None).quick_exit(code)
            workers.append(child)
        for child in workers:
            wrong += os.waitpid(child, 0)[1] != 0
    done.set()
    thread.join()
    return {"wrong": wrong}


# ---- a process whose CUDA is in use


def f53_order():
    """After torch has used CUDA: torch refuses door B, door A goes in; the program runs on."""
    answers = {"available": torch.cuda.is_available(), "first": block(1).numel()}
    answers["b"] = said(door_b.install)
    answers["still"] = block(1).numel()
    late = Door()
    answers["a"] = said(late.install)
    answers["twice"] = said(late.install)
    answers["blocks"] = late.stats()["blocks"]["current"]
    answers["after"] = block(1).numel()
    return answers


def twice():
    """Door B a second time is for torch to refuse."""
    return {"again": said(door_b.install), "still": block(1).numel()}


def f57_ends():
    """Tensors that outlive the module, freed by exit handlers and by nobody."""
    global at_the_end
    at_the_end = [block(2), block(3)]
    atexit.register(lambda: at_the_end.pop())
    sys.modules["kept_by_a_module"] = block(1)
    return {"kept": len(at_the_end)}


BOTH = [f54_four_calls, f55_devices_and_streams, f56_freed_while_kernels_run]
CASES = {
    "a": [*BOTH, f45_side_streams, f46_one_huge_tensor, f58_history_with_stacks, f59_forks],
    "b": [*BOTH, twice],
    "late": [f53_order],
}


def main():
    global door
    mode = sys.argv[1]
    torch.backends.cudnn.enabled = False
    if mode == "a":
        door = Door()
        door.install()
    elif mode == "b":
        door_b.install()
    for case in [*CASES[mode], f57_ends]:
        run_case(case.__name__, case)


if __name__ == "__main__":
    main()

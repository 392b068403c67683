"""What test_compile.py runs over the CUDA double, once per arm: torch.compile with real Inductor,
Triton and ptxas.

`native` is torch alone, `door_a` has door A, `door_b` has Lowtide's functions behind torch's
pluggable allocator. Each case prints one JSON line; the test compares the arms.

Compilation itself asks for memory here and there. `compile` is as `native` and runs first, so that
what the arms that are compared run comes from the compilers' caches.
"""

import gc
import sys

import door_b
import torch
import torch._inductor.config
from cuda_double import run_case
from cuda_double_program import double
from door_a import Door
from torch._inductor import cudagraph_trees
from torch._inductor.runtime import triton_heuristics
from training import History, gpt, record_steps, unet

STEPS = 5
arm = sys.argv[1]
door = Door() if arm == "door_a" else None


def compile_cheaply():
    """Each kernel once: to choose among its configurations Inductor would compile them all and
    measure them on the device, where times mean nothing."""
    torch._inductor.config.deterministic = True
    choose = triton_heuristics.cached_autotune

    def take_first(size_hints, configs, *arguments, **options):
        return choose(size_hints, configs[:1], *arguments, **options)

    triton_heuristics.cached_autotune = take_first


def small_unet(mode):
    return unet(mode, levels=1)


class NoRequests:
    """Door B's are heard of in test_door_b.py."""

    def start(self):
        pass

    def stop(self):
        return None


def settle():
    """The next case begins without compiled code, graphs and cached memory."""
    cudagraph_trees.reset_cudagraph_trees()
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    if arm == "door_b":
        door_b.reset_peaks()
        door_b.reset_accumulated()
    else:
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.reset_accumulated_memory_stats()


def count():
    return {
        "captures": double.calls("cudaStreamBeginCapture"),
        "replays": double.calls("cudaGraphLaunch"),
        "kernels": double.calls("cuLaunchKernel") + double.calls("cuLaunchKernelEx"),
        "modules": double.calls("cuModuleLoad") + double.calls("cuModuleLoadData"),
    }


def compiled(make, mode):
    settle()
    training = make(mode)
    counts = [count()]

    def figures():
        counts.append(count())
        return door_b.stats() if arm == "door_b" else torch.cuda.memory_stats()

    reset_peaks = torch.cuda.reset_peak_memory_stats
    requests = History()
    if arm == "door_b":
        requests, reset_peaks = NoRequests(), door_b.reset_peaks

    first = double.launches()
    result = record_steps(training, STEPS, requests, figures, reset_peaks)
    names = {launch.name.decode() for launch in double.launches_since(first)}
    result["triton"] = sorted(name for name in names if name.startswith("triton_"))
    result["steps"] = [
        {key: after[key] - before[key] for key in after}
        for before, after in zip(counts, counts[1:])
    ]
    result["disagreement"] = door.disagreement(torch.cuda.memory_stats()) if door else {}
    return result


def refused():
    """The user's view of CUDA graphs behind door B: as torch comes, and as DOORS.md sets it up."""
    weight = torch.zeros(64, 64, device="cuda", requires_grad=True)

    def first_call():
        settle()
        function = torch.compile(lambda x: torch.relu(x @ weight).sum(), mode="reduce-overhead")
        try:
            function(torch.zeros(8, 64, device="cuda"))
        except RuntimeError as error:
            return str(error)
        return None

    torchs = first_call()
    torch._inductor.config.triton.slow_path_cudagraph_asserts = False
    return {"torchs": torchs, "ours": first_call()}


def main():
    torch.backends.cudnn.enabled = False
    compile_cheaply()
    if door:
        door.install()
    if arm == "door_b":
        door_b.install()
    cases = {
        "gpt": lambda: compiled(gpt, "default"),
        "unet": lambda: compiled(small_unet, "default"),
    }
    if arm == "door_b":
        cases["refused"] = refused
    else:
        cases["gpt_graphs"] = lambda: compiled(gpt, "reduce-overhead")
        cases["unet_graphs"] = lambda: compiled(small_unet, "reduce-overhead")
    cases["end"] = double.verdict
    for name, case in cases.items():
        run_case(name, case)
    return 0


if __name__ == "__main__":
    sys.exit(main())

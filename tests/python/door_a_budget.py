"""Cases of door_a_program.py that only the door has: budget, pressure handler, bad input."""

import torch
from door_a import NO_LIMIT, refusal
from door_a_arm import MIB, door, double, failure, settle, stats, tensor


def budget():
    """Of the door only: the limit, the handler that is asked before it, torch's error after it."""
    if door is None:
        return {}
    figures = {}
    base = stats()["reserved_bytes.all.current"]
    door.set_limit(100 * MIB + base)
    kept = tensor(60)
    before = door.stats()
    figures["alone"] = failure(lambda: tensor(60))
    figures["alone_failures"] = door.stats()["failures"] - before["failures"]
    figures["fits_exactly"] = tensor(40).numel()
    torch.cuda.empty_cache()

    door.set_limit(100 * MIB - 1 + base)
    figures["one_byte_less"] = failure(lambda: tensor(40)) is not None
    door.set_limit(100 * MIB + base)

    asked, held = [], [kept]
    del kept

    def free_memory(need, request):
        asked.append((need, request))
        if not held:
            return 0
        count = held.pop().numel()
        figures["inside"] = failure(lambda: tensor(200))
        return count

    door.set_pressure(free_memory)
    ooms = stats()["num_ooms"]
    double.reset_largest()
    figures["freed"] = tensor(80).numel()
    figures["asked"] = asked[:]
    # The request inside the handler fails for real, once.
    figures["ooms"] = stats()["num_ooms"] - ooms
    figures["over"] = double.largest_bytes() - door.stats()["limit_bytes"]
    asked.clear()
    ooms = stats()["num_ooms"]
    figures["cached_first"] = [tensor(90).numel(), len(asked)]
    figures["last"] = failure(lambda: tensor(101))
    figures["last_asked"] = asked[:]
    figures["last_ooms"] = stats()["num_ooms"] - ooms
    figures["fraction"] = torch.cuda.get_per_process_memory_fraction()
    figures["stats"] = {
        key: door.stats()[key] for key in ("limit_hits", "pressure_calls", "pressure_bytes")
    }
    door.set_pressure(None)
    door.set_limit(NO_LIMIT)
    figures["without"] = tensor(200).numel()
    settle()
    return figures


def pressure_of_the_device():
    """No limit: the device has no more, and the handler is asked before the error."""
    if door is None:
        return {}
    free, total = torch.cuda.mem_get_info()
    double.set_memory(total - free + 50 * MIB)
    held, asked = [tensor(40)], []

    def free_memory(need, request):
        asked.append((need, request))
        return held.pop().numel() if held else 0

    door.set_pressure(free_memory)
    got = tensor(30).numel()
    message = failure(lambda: tensor(60))
    door.set_pressure(None)
    double.set_memory(total)
    settle()
    return {"got": got, "asked": asked, "message": message}


def budget_in_a_capture():
    """While a graph is captured nothing may be given back: the limit holds, nobody is asked."""
    if door is None:
        return {}
    cached = tensor(30)
    source = torch.zeros(MIB, device="cuda")
    torch.cuda.synchronize()
    door.set_limit(stats()["reserved_bytes.all.current"] + 20 * MIB)
    asked = []
    door.set_pressure(lambda need, request: asked.append(need) or 0)
    del cached
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        frees = double.calls("cudaFree")
        fits = source[:MIB] + 1
        message = failure(lambda: tensor(60))
        frees = double.calls("cudaFree") - frees
    del fits
    door.set_pressure(None)
    door.set_limit(NO_LIMIT)
    del recorded, source
    settle()
    return {"asked": asked, "message": message, "frees": frees}


def unknown_pointer():
    """Of a pointer that is nobody's block: torch's own error, and nothing reaches the device."""
    frees = double.calls("cudaFree")
    try:
        torch.cuda.caching_allocator_delete(0x1234000)
        said = ""
    except RuntimeError as error:
        said = str(error)
    return {"said": said, "frees": double.calls("cudaFree") - frees}


def bad_input():
    if door is None:
        return {}
    return {
        "twice": refusal(door.install),
        "no_device": refusal(door.set_limit, MIB, 7),
        "no_limit": refusal(door.set_limit, 0),
        "stats_of_no_device": refusal(door.stats, -1),
        "unknown_pointer": unknown_pointer(),
        "still_there": door.installed() and tensor(1).numel() == MIB,
    }


CASES = [budget, pressure_of_the_device, budget_in_a_capture, bad_input]

"""What test_door_a_placement.py runs over the CUDA double; each case prints one JSON line.

record FILE   trains with the native allocator's addresses, saves the plan of the whole program
load FILE     trains by that plan from the start, then diverges from it in every way
threads FILE  trains by it while other threads allocate, which may make it leave the plan
probe         trains, records two steps, shadows one, engages, moves the parameters
"""

import functools
import gc
import sys
import threading

import torch
from cuda_double import Double, run_case
from cuda_double_program import Gpt
from door_a import NO_LIMIT, Door, Refused, refusal
from torch import nn
from training import lasting_storages

MIB = 1 << 20
double = Double()
door = Door()


class Program:
    """A GPT that trains with a mark between its steps; the same requests in every process."""

    def __init__(self):
        torch.manual_seed(0)
        self.model = Gpt(layers=3, width=256).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.tokens = torch.randint(0, 256, (8, 128)).cuda()
        self.loss = None

    def step(self, batch=8, extra=False):
        tokens = self.tokens[:batch] if batch <= 8 else self.tokens.repeat(2, 1)[:batch]
        with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
            self.loss = self.model(tokens, tokens)
            if extra:
                self.loss = self.loss * torch.ones(700_000, device="cuda").sum()
            self.loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def evaluate(self):
        with torch.no_grad(), nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
            self.model(self.tokens, self.tokens)

    def train(self, steps=4):
        for _ in range(steps):
            self.step()
            door.placement("mark")

    def storages(self):
        return lasting_storages(self.model, self.optimizer)


def figures():
    stats = torch.cuda.memory_stats()
    return {
        "reserved": stats["reserved_bytes.all.current"],
        "allocated": stats["allocated_bytes.all.current"],
        "allocated_peak": stats["allocated_bytes.all.peak"],
        "requested": stats["requested_bytes.all.current"],
        "requested_peak": stats["requested_bytes.all.peak"],
        "blocks": stats["allocation.all.current"],
        "active": stats["active.all.current"],
        "small": stats["allocation.small_pool.current"],
        "allocations": stats["allocation.all.allocated"],
        "bytes": double.bytes(),
        "largest": double.largest_bytes(),
    }


def events_made():
    return double.calls("cudaEventRecord") + double.calls("cudaEventRecordWithFlags")


def in_arena(block):
    """A tensor's block, by the snapshot: the segment that the arena is has most blocks."""
    return arena_begin() <= block.data_ptr() < arena_begin() + door.placed()["arena_bytes"]


@functools.cache
def arena_begin():
    size = door.placed()["arena_bytes"]
    segments = [s for s in torch.cuda.memory_snapshot() if s["total_size"] >= size]
    return max(segments, key=lambda segment: len(segment["blocks"]))["address"]


# --- record -------------------------------------------------------------------------------------


def record(path):
    door.placement("record")
    program = Program()
    program.train()
    trained = figures()
    door.placement("save", path)
    return {**trained, "state": door.placed()["state"], "loss": program.loss.numel()}


# --- load ---------------------------------------------------------------------------------------

program = None


def load(path):
    global program
    door.placement("load", path)
    waiting = door.placed()["state"]
    program = Program()
    program.train()
    return {**figures(), "waiting": waiting, "placed": door.placed()}


def ledger():
    return {"disagreement": current(door.disagreement(torch.cuda.memory_stats()))}


def current(disagreement):
    """Counts begin with the installation, peaks with a reset."""
    return {
        k: v for k, v in disagreement.items() if k in ("active_bytes.current", "blocks.current")
    }


def peaks():
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    before = figures()
    blocks = [torch.empty(3 * MIB, dtype=torch.uint8, device="cuda") for _ in range(2)]
    during = figures()
    wrong = door.disagreement(torch.cuda.memory_stats())
    del blocks
    after = figures()
    torch.cuda.reset_peak_memory_stats()
    return {
        "before": before,
        "during": during,
        "after": after,
        "reset": figures(),
        "wrong": wrong,
    }


def snapshot():
    segments = torch.cuda.memory_snapshot()
    stats = torch.cuda.memory_stats()
    return {
        "blocks": sum(len(s["blocks"]) for s in segments),
        "allocated": sum(s["allocated_size"] for s in segments)
        - stats["allocated_bytes.all.current"],
        "by_blocks": sum(
            b["size"] for s in segments for b in s["blocks"] if b["state"] == "active_allocated"
        )
        - stats["allocated_bytes.all.current"],
        "gaps": [sum(b["size"] for b in s["blocks"]) - s["total_size"] for s in segments],
    }


def step_of(**changes):
    """A step and its mark: how many of its requests got their planned slots, and what grew."""
    before, reserved = door.placed(), figures()["reserved"]
    program.step(**changes)
    door.placement("mark")
    after = door.placed()
    return {
        "requests": after["requests"] - before["requests"],
        "hits": after["hits"] - before["hits"],
        "native": after["native_fallbacks"] - before["native_fallbacks"],
        "growth": figures()["reserved"] - reserved,
        "reported": after["reserved_growth"],
        "state": after["state"],
    }


def divergence():
    steps = {"plain": step_of(), "larger": step_of(batch=10), "after_larger": step_of()}
    steps |= {"extra": step_of(extra=True), "after_extra": step_of()}
    before = door.placed()
    program.evaluate()
    door.placement("mark")
    steps["evaluation"] = {"native": door.placed()["native_fallbacks"] - before["native_fallbacks"]}
    steps["after_evaluation"] = step_of()
    program.evaluate()  # inside of a step, as the plan sees it
    steps |= {"with_evaluation": step_of(), "after_with_evaluation": step_of()}
    steps |= {"smaller": step_of(batch=3), "after_smaller": step_of()}
    return steps


def record_stream():
    side = torch.cuda.Stream()
    block = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    placed, address = in_arena(block), block.data_ptr()
    double.set_delay(1 << 40)
    with torch.cuda.stream(side):
        block.zero_()
    block.record_stream(side)
    block.record_stream(torch.cuda.current_stream())
    before = events_made()
    del block
    made = events_made() - before
    double.set_delay(0)
    active = figures()["active"] - figures()["blocks"]
    other = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    early = other.data_ptr() == address
    double.advance(1 << 40)
    torch.cuda.synchronize()
    again = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    held = [torch.empty(2 * MIB, dtype=torch.uint8, device="cuda") for _ in range(5)]
    arena = all(map(in_arena, held))
    for block in held:
        block.record_stream(side)
    before = events_made()
    del block
    held.clear()
    torch.cuda.synchronize()
    return {
        "placed": placed,
        "events": made,
        "waiting": active,
        "early": early,
        "again": again.data_ptr() == address or in_arena(again),
        "five": [arena, events_made() - before],
    }


def bypass():
    before = door.placed()
    recorded = torch.cuda.CUDAGraph()
    source = torch.zeros(1000, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.graph(recorded):
        captured = source + 1
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        pooled = torch.empty(MIB, device="cuda")
    after = door.placed()
    outside = [not in_arena(captured), not in_arena(pooled)]
    del captured, pooled, recorded, pool
    return {
        "bypassed": after["bypassed"] - before["bypassed"],
        "served": after["hits"] + after["gap_fallbacks"] - before["hits"] - before["gap_fallbacks"],
        "source": in_arena(source),
        "outside": outside,
    }


def raw_calls():
    """Raw blocks are the native allocator's; an arena block is freed by its address, and once."""
    raw = torch.cuda.caching_allocator_alloc(MIB)
    outside = not arena_begin() <= raw < arena_begin() + door.placed()["arena_bytes"]
    torch.cuda.caching_allocator_delete(raw)
    block = torch.empty(MIB, dtype=torch.uint8, device="cuda")
    placed, blocks = in_arena(block), figures()["blocks"]
    torch.cuda.caching_allocator_delete(block.data_ptr())
    freed = blocks - figures()["blocks"]
    del block
    return {
        "raw_outside": outside,
        "placed": placed,
        "freed": [freed, blocks - figures()["blocks"]],
        "invalid_frees": door.placed()["invalid_frees"],
    }


def budget():
    """Under a limit: the handler frees blocks of the arena, and gaps serve the next request."""
    reserved = figures()["reserved"]
    kept = []
    while True:
        block = torch.empty(4 * MIB, dtype=torch.uint8, device="cuda")
        if not in_arena(block):
            break
        kept.append(block)
    del block
    torch.cuda.empty_cache()
    door.set_limit(figures()["reserved"] + MIB)
    asked = []

    def free_memory(need, request):
        asked.append((need, request))
        return kept.pop().numel() if kept else 0

    door.set_pressure(free_memory)
    count = len(kept)
    again = torch.empty(4 * MIB, dtype=torch.uint8, device="cuda")
    late = door.placed()["late_gaps"]
    served = in_arena(again)
    door.set_pressure(None)
    try:
        torch.empty(400 * MIB, dtype=torch.uint8, device="cuda")
        message = ""
    except torch.OutOfMemoryError as error:
        message = str(error)
    door.set_limit(NO_LIMIT)
    kept.clear()
    return {
        "count": count,
        "asked": asked,
        "served": served,
        "late": late,
        "message": message,
        "growth": figures()["reserved"] - reserved,
    }


def threads():
    errors = []

    def churn(seed):
        try:
            stream = torch.cuda.Stream() if seed % 2 else torch.cuda.current_stream()
            generator = torch.Generator().manual_seed(seed)
            kept = []
            with torch.cuda.stream(stream):
                for i in range(400):
                    size = int(torch.randint(1, 2 * MIB, (1,), generator=generator))
                    kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
                    if seed % 2 == 0 and i % 7 == 0:
                        kept[-1].record_stream(torch.cuda.current_stream())
                    if len(kept) > 12:
                        kept.pop(seed % 7)
        except Exception as error:
            errors.append(repr(error))

    workers = [threading.Thread(target=churn, args=(seed,)) for seed in range(6)]
    for worker in workers:
        worker.start()
    for _ in range(2):
        program.step()
        door.placement("mark")
    for worker in workers:
        worker.join()
    program.step()
    door.placement("mark")
    torch.cuda.synchronize()
    return {
        "errors": errors,
        "disagreement": current(door.disagreement(torch.cuda.memory_stats())),
    }


def refusals():
    return {
        "uninstall": refusal(door.uninstall),
        "shadow": refusal(door.placement, "shadow"),
        "engage": refusal(door.engage),
        "load": refusal(door.placement, "load", "/nowhere/a.json"),
        "device": refusal(lambda: door.placement("mark", device=7)),
    }


def leave():
    """The program ends its training: the arena is empty, and given back before an error."""
    global program
    door.placement("mark")
    program = None
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    kept = door.placed()["arena_bytes"]
    free, total = torch.cuda.mem_get_info()
    double.set_memory(total - free + 4 * MIB)
    served = torch.empty(kept + MIB, dtype=torch.uint8, device="cuda").numel()
    double.set_memory(total)
    after = door.placed()
    torch.cuda.empty_cache()
    reserved = figures()["reserved"]
    door.uninstall()
    return {
        "kept": kept,
        "served": served,
        "state": after["state"],
        "reason": after["reason"],
        "reserved": reserved,
    }


# --- probe --------------------------------------------------------------------------------------


def probed(step):
    """Two steps recorded and one shadowed, after one of warm-up; the states in between."""
    step()
    door.placement("record")
    door.placement("mark")
    for _ in range(2):
        step()
        door.placement("mark")
    door.placement("shadow")
    states = [door.placed()["state"]]
    step()
    door.placement("mark")
    return [*states, door.placed()["state"]]


def no_gain():
    """Small blocks beside others that live on: an arena would come on top."""
    kept = [torch.empty(1000, dtype=torch.uint8, device="cuda") for _ in range(10)]

    def step():
        [torch.empty(2000, dtype=torch.uint8, device="cuda") for _ in range(10)]

    states = probed(step)
    reserved = figures()["reserved"]
    try:
        door.engage()
        refused = None
    except Refused as error:
        refused = str(error)
    state = door.placed()["state"]
    door.placement("disengage")
    return {
        "states": states,
        "refused": refused,
        "still": state,
        "after": door.placed()["state"],
        "growth": figures()["reserved"] - reserved,
        "kept": len(kept),
    }


def probe():
    global program
    program = Program()
    states = probed(program.step)
    native = figures()
    value = next(program.model.parameters())
    before = value.detach().cpu().clone()
    double.reset_largest()
    door.engage(program.storages())
    moved = {"same": torch.equal(value.detach().cpu(), before), "placed": in_arena(value)}
    placed = door.placed()
    program.train(3)
    return {
        "native": native,
        "states": states,
        "moved": moved,
        "at_engagement": placed,
        "after": door.placed(),
        "figures": figures(),
        "disagreement": current(door.disagreement(torch.cuda.memory_stats())),
    }


def main():
    torch.backends.cudnn.enabled = False
    door.install()
    arm, *paths = sys.argv[1:]
    cases = {
        "record": [record],
        "load": [
            load,
            ledger,
            peaks,
            snapshot,
            divergence,
            record_stream,
            bypass,
            raw_calls,
            budget,
            refusals,
            leave,
        ],
        "threads": [load, threads],
        "probe": [no_gain, probe],
    }[arm]
    for case in cases:
        run_case(case.__name__, functools.partial(case, *paths) if case in (record, load) else case)
    run_case("end", double.verdict)


if __name__ == "__main__":
    main()

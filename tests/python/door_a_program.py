"""What test_door_a.py runs over the CUDA double, once per arm: `native` is torch alone, `door` has
door A. Each case prints one JSON line; the test compares the arms.

In the door's arm each line also says where the ledger and torch's own statistics disagree.
"""

import json
import pickle
import sys
import tempfile
import threading

import torch
from cuda_double import Double
from cuda_double_program import Gpt
from door_a import NO_LIMIT, Door, Recorder, Refused
from torch import nn

MIB = 1 << 20
double = Double()
door = None if sys.argv[1] == "native" else Door()
recorder = None if door is None else Recorder()


def stats(device=0):
    return torch.cuda.memory_stats(device)


def disagreement(device=0):
    """Figures of the ledger that are not torch's, to the byte."""
    if door is None or not door.installed():
        return {}
    ours, torchs = door.stats(device), stats(device)
    pairs = {
        "active_bytes.current": (ours["active_bytes"]["current"], "requested_bytes.all.current"),
        "active_bytes.peak": (ours["active_bytes"]["peak"], "requested_bytes.all.peak"),
        "blocks.current": (ours["blocks"]["current"], "allocation.all.current"),
        "blocks.peak": (ours["blocks"]["peak"], "allocation.all.peak"),
        "alloc_calls": (ours["alloc_calls"], "allocation.all.allocated"),
        "free_calls": (ours["free_calls"], "allocation.all.freed"),
        "rounded_bytes": (ours["rounded_bytes"], "allocated_bytes.all.current"),
        "reserved_bytes": (ours["reserved_bytes"]["current"], "reserved_bytes.all.current"),
    }
    wrong = {
        name: [figure, torchs[key]]
        for name, (figure, key) in pairs.items()
        if figure != torchs[key]
    }
    for name in ("unknown_frees", "lost_blocks"):
        if ours[name]:
            wrong[name] = ours[name]
    return wrong


def tensor(mib, **options):
    return torch.empty(int(mib * MIB), dtype=torch.uint8, device="cuda", **options)


def settle():
    """The next case begins with nothing cached, its peaks and its counts at zero."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()


def events_made():
    return double.calls("cudaEventRecord") + double.calls("cudaEventRecordWithFlags")


class Training:
    def __init__(self):
        torch.manual_seed(0)
        self.model = Gpt().cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.tokens = torch.randint(0, 256, (8, 64)).cuda()

    def step(self):
        with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
            self.model(self.tokens, self.tokens).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()


def history(actions=("alloc", "free_requested")):
    """Sizes of device 0's history since it was switched on; frees are negative."""
    torch.cuda.synchronize()
    entries = torch.cuda.memory._snapshot()["device_traces"][0]
    return [
        e["size"] * (1 if e["action"] == "alloc" else -1) for e in entries if e["action"] in actions
    ]


def record_history(**options):
    torch.cuda.memory._record_memory_history(context=None, clear_history=True, **options)


def train():
    """Requests of four steps: by torch's history, and by the ledger's sink."""
    training = Training()
    record_history()
    if recorder:
        recorder.start()
    figures = []
    for _ in range(4):
        torch.cuda.reset_peak_memory_stats()
        training.step()
        figures.append(dict(stats()))
    heard = recorder.stop() if recorder else None
    requests = history()
    torch.cuda.memory._record_memory_history(enabled=None)
    return {
        "requests": requests,
        "stats": figures,
        "heard": [size for size, _ in heard] if heard else requests,
        "streams": len({stream for _, stream in heard}) if heard else 1,
    }


def reinstall():
    """The door is closed and opened between and inside steps, with everything alive."""
    training = Training()
    kept = [tensor(1), tensor(3)]
    for i in range(6):
        training.step()
        if door and i % 2 == 0:
            door.uninstall()
        kept.append(tensor(2))
        del kept[0]
        if door and i % 2 == 1:
            door.install()
    loss = training.model(training.tokens, training.tokens)
    if door:
        door.uninstall()
    loss.backward()
    if door:
        door.install()
    wrong = current_disagreement()
    figures = stats()
    settle()  # from here on peaks and counts are the same again
    return {"stats": dict(figures), "wrong_after_install": wrong}


def current_disagreement():
    """Peaks and counts begin with the installation: until settle() only current figures agree."""
    return {
        name: pair
        for name, pair in disagreement().items()
        if name not in ("active_bytes.peak", "blocks.peak", "alloc_calls", "free_calls")
    }


def install_under_threads():
    """Other threads allocate and free while the door opens and closes."""
    if door is None:
        return {"rounds": 30}
    done = threading.Event()

    def churn(seed):
        kept = []
        generator = torch.Generator().manual_seed(seed)
        while not done.is_set():
            size = int(torch.randint(1, 3 * MIB, (1,), generator=generator))
            kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
            if len(kept) > 20:
                kept.pop(seed % 7)

    threads = [threading.Thread(target=churn, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    rounds = 30
    for _ in range(rounds):
        door.uninstall()
        door.install()
    done.set()
    for thread in threads:
        thread.join()
    wrong = current_disagreement()
    settle()
    return {"rounds": rounds, "wrong_after_install": wrong}


def record_stream():
    """The trap: with another deleter than the native one, no event is made, without a word."""
    side = torch.cuda.Stream()

    def use(block):
        double.set_delay(1 << 40)
        with torch.cuda.stream(side):
            block.zero_()
        block.record_stream(side)
        address = block.data_ptr()
        before = events_made()
        del block
        made = events_made() - before
        double.set_delay(0)
        again = tensor(3).data_ptr() == address
        double.advance(1 << 40)
        torch.cuda.synchronize()
        return {"events": made, "given_again_too_early": again}

    uses = {"plain": use(tensor(3))}
    if door:
        door.uninstall()
        blocks = [tensor(3)]
        door.install()
        uses["made_without_the_door"] = use(blocks.pop())
        blocks = [tensor(3)]
        door.uninstall()
        uses["made_with_the_door"] = use(blocks.pop())
        door.install()
    held = [tensor(3) for _ in range(5)]
    for block in held:
        block.record_stream(side)
    count = events_made()
    del block
    held.clear()
    torch.cuda.synchronize()
    settle()
    return {"uses": uses, "five": events_made() - count}


def split_and_merge():
    kept = [tensor(1.5), tensor(0.25), tensor(12), tensor(4)]
    del kept[0]
    kept.append(tensor(0.7))
    segments = sorted(
        (
            segment["segment_type"],
            segment["total_size"],
            [(block["size"], block["state"]) for block in segment["blocks"]],
        )
        for segment in torch.cuda.memory_snapshot()
    )
    del kept
    return {"segments": segments, "stats": dict(stats())}


def expandable_segments():
    settings = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
    settings("expandable_segments:True")
    mapped = double.calls("cuMemMap")
    blocks = [tensor(30), tensor(30)]
    figures = dict(stats())
    del blocks
    settle()
    settings("expandable_segments:False")
    return {
        "mapped": double.calls("cuMemMap") - mapped,
        "stats": figures,
        "emptied": stats()["reserved_bytes.all.current"],
    }


def graph():
    source, target = torch.zeros(1000, device="cuda"), torch.zeros(1000, device="cuda")
    torch.cuda.synchronize()
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        start = double.launches()
        kept = (source + 1) * 2
        target.copy_(source)
        captured = double.launches() - start
    figures = dict(stats())
    source.copy_(torch.arange(1000.0))
    recorded.replay()
    pools = sorted({tuple(s["segment_pool_id"]) != (0, 0) for s in torch.cuda.memory_snapshot()})
    copied = target.cpu()[7].item()
    shape = list(kept.shape)
    del kept, recorded, target
    settle()
    return {
        "captured": captured,
        "copied": copied,
        "shape": shape,
        "pools": pools,
        "stats": figures,
        "after": dict(stats()),
    }


def graph_tree_calls():
    """What torch's graph trees ask of the allocator, one call after the other."""
    pool = torch.cuda.graph_pool_handle()
    graph_of_pool, kept = torch.cuda.CUDAGraph(), []
    source = torch.zeros(1000, device="cuda")
    with torch.cuda.graph(graph_of_pool, pool=pool):
        kept = [source + i for i in range(3)]
    storages = [block.untyped_storage() for block in kept]
    standard = [torch._C._has_Standard_Deleter(storage._cdata) for storage in storages]
    live = {storage.data_ptr() for storage in storages}
    as_expected = torch._C._cuda_checkPoolLiveAllocations(0, pool, live)
    not_expected = torch._C._cuda_checkPoolLiveAllocations(0, pool, set())
    state = torch._C._cuda_getCheckpointState(0, pool)
    places = [(storage.data_ptr(), storage.nbytes()) for storage in storages]
    for storage in storages:
        torch._C._free_And_Remove_DeleterFn(storage._cdata)
    after_free = torch._C._cuda_checkPoolLiveAllocations(0, pool, set())
    blocks_after_free = stats()["allocation.all.current"]
    again = [
        torch._C._construct_storage_from_data_pointer(address, torch.device("cuda:0"), count)
        for address, count in places
    ]
    torch._C._cuda_setCheckpointPoolState(0, state, [], [storage._cdata for storage in again])
    restored = torch._C._cuda_checkPoolLiveAllocations(0, pool, live)
    owned = [torch._C._has_Standard_Deleter(storage._cdata) for storage in again]
    wrong = disagreement()
    blocks = stats()["allocation.all.current"]
    del kept, storages, again, graph_of_pool, state
    settle()
    return {
        "standard": standard,
        "as_expected": as_expected,
        "not_expected": not_expected,
        "after_free": after_free,
        "restored": restored,
        "owned": owned,
        "blocks": [blocks_after_free, blocks],
        "wrong": wrong,
    }


def graph_trees():
    """torch.compile over torch's own graph trees; no Inductor, no Triton."""
    weight = torch.zeros(64, 64, device="cuda", requires_grad=True)

    def body(x):
        return torch.relu(torch.relu(x @ weight) @ weight)

    compiled = torch.compile(body, backend="cudagraphs")
    x = torch.zeros(8, 64, device="cuda")
    graphs = []
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        launched = double.calls("cudaGraphLaunch")
        compiled(x).sum().backward()
        weight.grad = None
        graphs.append(double.calls("cudaGraphLaunch") - launched)
    figures = dict(stats())
    from torch._inductor import cudagraph_trees

    weight = None
    cudagraph_trees.reset_cudagraph_trees()
    torch._dynamo.reset()
    settle()
    return {"graphs": graphs, "stats": figures}


def mem_pool():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = tensor(5)
    outside = tensor(5)
    figures = {
        "segments": [segment["total_size"] for segment in pool.snapshot()],
        "use_count": pool.use_count(),
        "stats": dict(stats()),
    }
    del inside, outside, pool
    settle()
    return {**figures, "emptied": stats()["reserved_bytes.all.current"]}


def mem_pool_of_another_allocator():
    helper = Recorder()
    pluggable = torch.cuda.memory.CUDAPluggableAllocator(
        str(helper.path), "recorder_malloc", "recorder_free"
    )
    pool = torch.cuda.MemPool(pluggable.allocator())
    with torch.cuda.use_mem_pool(pool):
        inside = tensor(5)
    held = helper.pool_bytes()
    figures = dict(stats())
    del inside, pool
    settle()
    return {"held": held, "stats": figures, "left": helper.pool_bytes()}


def peaks():
    kept = tensor(10)
    del kept
    high = torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    low = torch.cuda.max_memory_allocated()
    counted = stats()["allocation.all.allocated"]
    torch.cuda.reset_accumulated_memory_stats()
    accelerator = torch.accelerator.memory_stats()
    return {
        "high": high,
        "low": low,
        "counted": counted,
        "reset": stats()["allocation.all.allocated"],
        "accelerator": dict(accelerator),
    }


def snapshot_and_history():
    record_history(stacks="python")
    torch.cuda.memory._record_memory_history(context="all", clear_history=True)
    kept = tensor(3)
    with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
        torch.cuda.memory._dump_snapshot(file.name)
        seen = pickle.load(file)
    frames = [
        frame["name"]
        for entry in seen["device_traces"][0]
        if entry["action"] == "alloc"
        for frame in entry["frames"]
    ]
    blocks = [
        block["requested_size"]
        for segment in seen["segments"]
        for block in segment["blocks"]
        if block["state"] == "active_allocated" and block["requested_size"] == 3 * MIB
    ]
    del kept
    torch.cuda.memory._record_memory_history(enabled=None)
    skipped = None
    if "skip_actions" in str(torch.cuda.memory._record_memory_history.__signature__):
        record_history(skip_actions=["free_requested", "free_completed"])
        kept = [tensor(3) for _ in range(4)]
        del kept
        skipped = history(actions=("alloc", "free_requested", "free_completed"))
        torch.cuda.memory._record_memory_history(enabled=None)
    actions = [entry["action"] for entry in seen["device_traces"][0]]
    return {
        "actions": actions,
        "python_frames": "snapshot_and_history" in frames,
        "blocks": blocks,
        "skipped": skipped,
    }


def metadata():
    """Annotations and metadata, where this torch has them."""
    if not hasattr(torch.cuda.memory, "_memory_metadata_supported"):
        return {"supported": None}
    record_history()
    torch.cuda.memory._set_memory_metadata("weights")
    kept = tensor(3)
    torch.cuda.memory._annotate_tensor(kept, "later")
    entries = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._set_memory_metadata("")
    torch.cuda.memory._record_memory_history(enabled=None)
    return {
        "supported": torch.cuda.memory._memory_metadata_supported(),
        "texts": [(entry["action"], entry.get("user_metadata")) for entry in entries],
    }


def out_of_memory():
    free, total = torch.cuda.mem_get_info()
    seen = []
    torch._C._cuda_attach_out_of_memory_observer(
        lambda device, request, total_bytes, free_bytes: seen.append((device, request))
    )
    double.set_memory(total - free + 50 * MIB)
    kept = tensor(40)
    message, kind = "", ""
    try:
        tensor(20)
    except torch.OutOfMemoryError as error:
        message, kind = str(error), type(error).__name__
    figures = dict(stats())
    del kept
    after = tensor(45).numel()  # fits once what is cached is given back
    double.set_memory(total)
    settle()
    return {"message": message, "kind": kind, "observed": seen, "stats": figures, "after": after}


def empty_cache_and_fraction():
    kept = [tensor(30) for _ in range(3)]
    del kept
    cached = stats()["reserved_bytes.all.current"]
    frees = double.calls("cudaFree")
    torch.cuda.empty_cache()
    frees = double.calls("cudaFree") - frees
    emptied = stats()["reserved_bytes.all.current"]
    _, total = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction(100 * MIB / total)
    kept, refused = tensor(60), False
    try:
        tensor(60)
    except torch.OutOfMemoryError:
        refused = True
    fraction = torch.cuda.get_per_process_memory_fraction()
    torch.cuda.set_per_process_memory_fraction(1.0)
    del kept
    settle()
    return {
        "cached": cached,
        "emptied": emptied,
        "frees": frees,
        "refused": refused,
        "fraction": round(fraction * total / MIB),
    }


def profiler():
    """Memory events of torch's profiler, without CUPTI."""
    with torch.autograd.profiler_legacy.profile(profile_memory=True) as profile:
        kept = tensor(3)
        del kept
    return {
        "events": [
            (event.name, event.device_memory_usage)
            for event in profile.function_events
            if event.device_memory_usage
        ]
    }


def raw_calls():
    """Calls that torch's extensions and IPC make: raw blocks, base allocation, caching off."""
    address = torch.cuda.caching_allocator_alloc(5 * MIB)
    figures = dict(stats())
    torch.cuda.caching_allocator_delete(address)
    after = stats()["allocation.all.current"]
    uncached = {}
    if hasattr(torch.cuda.memory, "caching_allocator_disabled"):
        before = double.calls("cudaMalloc")
        with torch.cuda.memory.caching_allocator_disabled():
            block = tensor(3)
        uncached = {"mallocs": double.calls("cudaMalloc") - before}
        del block
    return {
        "stats": figures,
        "after": after,
        "backend": torch.cuda.memory.get_allocator_backend(),
        **uncached,
    }


def given_address():
    """`allocateWithAddress`, where this torch has it."""
    if not hasattr(torch.UntypedStorage, "_resize_with_addr_"):
        return {"has": False}
    block = tensor(8)
    address = block.data_ptr()
    del block
    storage = torch.UntypedStorage(0, device="cuda")
    storage._resize_with_addr_(2 * MIB, address + MIB)
    offset = storage.data_ptr() - address
    wrong = disagreement()
    blocks = stats()["allocation.all.current"]
    del storage
    settle()
    return {"has": True, "offset": offset, "wrong": wrong, "blocks": blocks}


def devices():
    before = stats(1)["allocation.all.current"]
    there = torch.zeros(1000, device="cuda:1")
    here = there.to("cuda:0")
    wrong = disagreement(1)
    return {
        "value": here.cpu().abs().sum().item(),
        "blocks": stats(1)["allocation.all.current"] - before,
        "wrong": wrong,
    }


def refusal(call, *arguments):
    try:
        call(*arguments)
    except Refused as error:
        return str(error)
    return None


def budget():
    """Of the door only: the limit, the handler that is asked before it, torch's error after it."""
    if door is None:
        return {}
    figures = {}
    door.set_limit(stats()["reserved_bytes.all.current"] + 100 * MIB)
    kept = tensor(60)
    before = door.stats()
    figures["alone"] = failure(lambda: tensor(60))
    figures["alone_failures"] = door.stats()["failures"] - before["failures"]
    figures["fits_exactly"] = tensor(40).numel()

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


def failure(call):
    try:
        call()
    except torch.OutOfMemoryError as error:
        return str(error)
    return None


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


def bad_input():
    if door is None:
        return {}
    return {
        "twice": refusal(door.install),
        "no_device": refusal(door.set_limit, MIB, 7),
        "no_limit": refusal(door.set_limit, 0),
        "stats_of_no_device": refusal(door.stats, -1),
        "still_there": door.installed() and tensor(1).numel() == MIB,
    }


def main():
    torch.backends.cudnn.enabled = False
    if door:
        door.install()
    cases = [
        train,
        reinstall,
        install_under_threads,
        record_stream,
        split_and_merge,
        expandable_segments,
        graph,
        graph_tree_calls,
        graph_trees,
        mem_pool,
        mem_pool_of_another_allocator,
        peaks,
        snapshot_and_history,
        metadata,
        out_of_memory,
        empty_cache_and_fraction,
        profiler,
        raw_calls,
        given_address,
        devices,
        budget,
        pressure_of_the_device,
        budget_in_a_capture,
        bad_input,
    ]
    only = sys.argv[2:]
    for case in cases:
        if only and case.__name__ not in only:
            continue
        settle()
        try:
            result = case()
            result["disagreement"] = disagreement()
        except Exception as error:
            result = {"error": f"{type(error).__name__}: {error}"}
            if only:
                raise
        print(json.dumps({"case": case.__name__, **result}), flush=True)
    end = {"case": "end", "misuse": double.misuse(), "first_misuse": double.first_misuse()}
    print(json.dumps({**end, "missing": double.missing()}), flush=True)


if __name__ == "__main__":
    main()

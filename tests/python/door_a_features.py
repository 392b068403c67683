"""Cases of door_a_program.py that torch alone passes too: a row of the feature table each."""

import pickle
import tempfile
import threading

import torch
from door_a import Recorder
from door_a_arm import (
    MIB,
    current_disagreement,
    disagreement,
    door,
    double,
    events_made,
    recorder,
    settle,
    stats,
    tensor,
)
from training import History, gpt, history, record_steps, unet


def record_history(**options):
    torch.cuda.memory._record_memory_history(context=None, clear_history=True, **options)


def trained(training):
    """Requests of four steps: by torch's history, and by the ledger's sink."""
    if recorder:
        recorder.start()
    result = record_steps(training, 4, History(), stats, torch.cuda.reset_peak_memory_stats)
    heard = recorder.stop() if recorder else None
    return {
        **result,
        "heard": [size for size, _ in heard] if heard else result["requests"],
        "streams": len({stream for _, stream in heard}) if heard else 1,
    }


def train_gpt():
    return trained(gpt())


def train_unet():
    return trained(unet())


def reinstall():
    """The door is closed and opened between and inside steps, with everything alive."""
    training = gpt()
    kept = [tensor(1), tensor(3)]
    for i in range(6):
        training.step()
        if door and i % 2 == 0:
            door.uninstall()
        kept.append(tensor(2))
        del kept[0]
        if door and i % 2 == 1:
            door.install()
    loss = training.model(*training.inputs)
    if door:
        door.uninstall()
    loss.backward()
    if door:
        door.install()
    wrong = current_disagreement()
    figures = stats()
    settle()  # from here on peaks and counts are the same again
    return {"stats": dict(figures), "wrong_after_install": wrong}


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
        skipped = history(free_requested=-1, free_completed=-1)
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


CASES = [
    train_gpt,
    train_unet,
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
]

"""What test_cuda_double.py runs over the double: torch's real CUDA code, one case after the other.

Each case prints one JSON line with its name and what it measured; the test judges. One process for
all of them, since most of the time goes into loading torch. A case that raises prints its error.
"""

import collections
import sys

import torch
from cuda_double import Double, run_case
from torch import nn
from torch.utils.checkpoint import checkpoint

MIB = 1 << 20
NEVER = 1 << 40  # ticks
double = Double()


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1)
        )

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.norms[0](x)).chunk(3, dim=-1)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in parts)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.1, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norms[1](x))


class Gpt(nn.Module):
    def __init__(self, layers=2, width=128, vocabulary=256, checkpointed=False):
        super().__init__()
        self.checkpointed = checkpointed
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList([Block(width, 4) for _ in range(layers)])
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


def stats():
    return torch.cuda.memory_stats()


def reserved():
    """By torch and by the double."""
    return {
        "reserved": stats()["reserved_bytes.all.current"],
        "bytes": double.bytes(),
    }


def available():
    return {
        "available": torch.cuda.is_available(),
        "devices": torch.cuda.device_count(),
        "name": torch.cuda.get_device_name(0),
        "capability": torch.cuda.get_device_capability(0),
        "memory": torch.cuda.mem_get_info(),
    }


def train(checkpointed):
    torch.cuda.empty_cache()
    model = Gpt(checkpointed=checkpointed).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    # Made on the CPU: indices that a kernel of the double had made would be garbage.
    tokens = torch.randint(0, 256, (8, 64)).cuda()
    steps = []
    with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
        for _ in range(4):
            torch.cuda.reset_peak_memory_stats()
            double.reset_largest()
            allocations, launches = stats()["allocation.all.allocated"], double.launches()
            model(tokens, tokens).backward()
            optimizer.step()
            optimizer.zero_grad()
            done = double.launches_since(launches)
            steps.append(
                {
                    "allocations": stats()["allocation.all.allocated"] - allocations,
                    "peak": stats()["allocated_bytes.all.peak"],
                    "reserved_peak": stats()["reserved_bytes.all.peak"],
                    "largest_bytes": double.largest_bytes(),
                    "launches": len(done),
                    "blas": sum(launch.work == 3 for launch in done),
                    "dropouts": sum(b"dropout" in launch.name for launch in done),
                    "softmax": sum(b"softmax" in launch.name.lower() for launch in done),
                    "optimizer": sum(b"multi_tensor_apply" in launch.name for launch in done),
                    "threads": len({launch.thread for launch in done}),
                }
            )
    return {"steps": steps, **reserved()}


def empty_cache():
    blocks = [torch.empty(30 * MIB, dtype=torch.uint8, device="cuda") for _ in range(3)]
    full = reserved()
    del blocks
    freed = reserved()
    frees = double.calls("cudaFree")
    torch.cuda.empty_cache()
    return {
        "full": full,
        "freed": freed,
        "emptied": reserved(),
        "frees": double.calls("cudaFree") - frees,
    }


def out_of_memory():
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    double.set_memory(total - free + 50 * MIB)
    kept = torch.empty(40 * MIB, dtype=torch.uint8, device="cuda")
    try:
        torch.empty(20 * MIB, dtype=torch.uint8, device="cuda")
        message = ""
    except torch.OutOfMemoryError as error:
        message = str(error)
    del kept
    after = torch.empty(
        45 * MIB, dtype=torch.uint8, device="cuda"
    )  # fits once cached is given back
    double.set_memory(total)
    return {"message": message, "retries": stats()["num_alloc_retries"], "after": after.numel()}


def expandable_segments():
    torch.cuda.empty_cache()
    torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
    before = reserved()
    blocks = [torch.empty(30 * MIB, dtype=torch.uint8, device="cuda") for _ in range(2)]
    blocks[1].zero_()
    full = reserved()
    read = blocks[1][-1].item()
    del blocks
    torch.cuda.empty_cache()
    emptied = reserved()
    torch._C._accelerator_setAllocatorSettings("expandable_segments:False")
    return {
        "before": before,
        "full": full,
        "emptied": emptied,
        "read": read,
        "created": double.calls("cuMemCreate"),
        "mapped": double.calls("cuMemMap"),
        "unmapped": double.calls("cuMemUnmap"),
    }


def graph():
    source = torch.zeros(1000, device="cuda")
    target = torch.zeros(1000, device="cuda")
    weight = torch.zeros(100, 1000, device="cuda")
    torch.mv(weight, source)  # cuBLAS's handle and workspace, before the capture
    torch.cuda.synchronize()
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        start = double.launches()
        target.copy_(source)
        product = torch.mv(weight, source) + 1
        captured = double.launches() - start
    source.copy_(torch.arange(1000.0))
    untouched = target.cpu()[7].item()
    start = double.launches()
    recorded.replay()
    correlations = collections.Counter(
        launch.correlation for launch in double.launches_since(start)
    )
    return {
        "captured": captured,
        "replayed": max(correlations.values()),  # by one call
        "untouched": untouched,
        "copied": target.cpu()[7].item(),
        "product": product.numel(),
        **reserved(),
    }


def record_stream():
    side = torch.cuda.Stream()
    torch.cuda.synchronize()

    def events():
        return double.calls("cudaEventRecord") + double.calls("cudaEventRecordWithFlags")

    def place_after(record):
        """Whether a block that a side stream uses is handed out again while that is not done."""
        block = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
        address = block.data_ptr()
        double.set_delay(NEVER)
        with torch.cuda.stream(side):
            block.zero_()
        if record:
            block.record_stream(side)
        before = events()
        del block
        recorded = events() - before
        double.set_delay(0)
        during = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda").data_ptr() == address
        double.advance(NEVER)
        after = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda").data_ptr() == address
        torch.cuda.synchronize()
        return {"events": recorded, "during": during, "after": after}

    torch.cuda.empty_cache()
    return {"recorded": place_after(True), "plain": place_after(False)}


def streams_and_devices():
    one, two = torch.cuda.Stream(0), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(one):
        two.record()
    before = double.bytes(1)
    there = torch.zeros(1000, device="cuda:1")
    here = there.to("cuda:0")
    return {
        "query": two.query(),
        "other_device": double.bytes(1) - before,
        "reserved": torch.cuda.memory_stats(1)["reserved_bytes.all.current"],
        "value": here.cpu().abs().sum().item(),
        "generator": torch.Generator("cuda").initial_seed() >= 0,
    }


def main():
    torch.backends.cudnn.enabled = False
    torch.manual_seed(0)
    cases = {
        "available": available,
        "train": lambda: train(False),
        "train_checkpointed": lambda: train(True),
        "empty_cache": empty_cache,
        "out_of_memory": out_of_memory,
        "expandable_segments": expandable_segments,
        "graph": graph,
        "record_stream": record_stream,
        "streams_and_devices": streams_and_devices,
        "end": double.verdict,
    }
    for name, case in cases.items():
        run_case(name, case)
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Door A on a GPU: what no double can tell. scripts/device-check runs it, and judges.

  device_door_a.py            torch alone
  device_door_a.py LIBRARY    with door A, from liblowtide_cuda.so

One JSON line per case. `fine` is the case's own verdict; `same` is what both runs must agree on.
Peer access needs two GPUs and is no case here.
"""

import os
import pathlib
import sys
import tempfile

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "python"))
from cuda_double import run_case  # noqa: E402
from door_a import Door  # noqa: E402

MIB = 1 << 20


def training():
    """Losses bit by bit, and every statistic of torch's."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Dropout(0.1), nn.Linear(1024, 256))
    model = model.cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(64, 256).cuda()
    losses = []
    for _ in range(5):
        loss = (model(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item().hex())
    return {"fine": True, "same": {"losses": losses, "stats": dict(torch.cuda.memory_stats())}}


def record_stream():
    """The block of a stream that is still busy is not handed out again."""
    side, block = torch.cuda.Stream(), torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    address = block.data_ptr()
    with torch.cuda.stream(side):
        torch.cuda._sleep(2_000_000_000)  # a second or so
        block.fill_(1)
    block.record_stream(side)
    del block
    during = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda").data_ptr() == address
    busy = not side.query()
    torch.cuda.synchronize()
    figures = {"busy": busy, "during": during}
    return {"fine": busy and not during, "same": figures}


def receive(tensors, answers):
    answers.put(tensors.get().sum().item())


def ipc():
    """A tensor reaches another process without a copy."""
    processes = torch.multiprocessing.get_context("spawn")
    tensors, answers = processes.Queue(), processes.Queue()
    child = processes.Process(target=receive, args=(tensors, answers), daemon=True)
    child.start()
    try:
        tensor = torch.arange(1000, device="cuda")
        tensors.put(tensor)
        total = answers.get(timeout=30)
        child.join(30)
    finally:
        child.kill()  # it may wait for what never comes
    return {"fine": total == 499500 and child.exitcode == 0, "same": total}


def cudnn_benchmark():
    """cuDNN's search asks how large a workspace may be."""
    torch.backends.cudnn.benchmark = True
    convolution = nn.Conv2d(16, 32, 3, padding=1).cuda()
    out = convolution(torch.randn(8, 16, 64, 64, device="cuda"))
    out.sum().backward()
    torch.backends.cudnn.benchmark = False
    return {"fine": bool(convolution.weight.grad.isfinite().all().item()), "same": list(out.shape)}


def nccl():
    """NCCL registers the allocator's segments through a trace tracker."""
    os.environ["TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        torch.distributed.init_process_group(
            "nccl", init_method=f"file://{folder}/store", rank=0, world_size=1
        )
        tensor = torch.ones(MIB, device="cuda")
        torch.distributed.all_reduce(tensor)
        total = tensor.sum().item()
        torch.distributed.destroy_process_group()
    return {"fine": total == MIB, "same": total}


CASES = [training, record_stream, ipc, cudnn_benchmark, nccl]


def judged(case, door):
    result = case()
    wrong = door.disagreement(torch.cuda.memory_stats()) if door else {}
    return {"fine": False, "error": f"the ledger and torch differ: {wrong}"} if wrong else result


def main():
    door = Door(sys.argv[1]) if len(sys.argv) > 1 else None
    if door:
        door.install()
    for case in CASES:
        run_case(case.__name__, lambda case=case: judged(case, door))


if __name__ == "__main__":
    main()

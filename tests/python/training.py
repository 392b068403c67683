"""What tests train over the CUDA double, eagerly or compiled, and what that asks of the allocator.

cuDNN is not doubled, hence off: convolutions are torch's own, by columns and cuBLAS.
"""

import torch
from cuda_double_program import Gpt
from torch import nn
from unet import UNet


class Training:
    def __init__(self, model, inputs, mode=None):
        """`mode` is one of torch.compile; None: eager."""
        self.model = model.cuda()
        self.run = torch.compile(self.model, mode=mode) if mode else self.model
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        # Made on the CPU: indices that a kernel of the double had made would be garbage.
        self.inputs = [tensor.cuda() for tensor in inputs]

    def step(self):
        with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
            self.run(*self.inputs).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()


def lasting_storages(model, optimizer, *others):
    """Of parameters, buffers, optimizer state and other tensors: what steps hand on."""
    states = [
        value
        for state in optimizer.state.values()
        for value in state.values()
        if torch.is_tensor(value) and value.is_cuda
    ]
    tensors = [*model.parameters(), *model.buffers(), *states, *others]
    return [tensor.untyped_storage() for tensor in tensors]


def gpt(mode=None):
    torch.manual_seed(0)
    return Training(Gpt(), [torch.randint(0, 256, (8, 64))] * 2, mode)


def unet(mode=None, levels=2):
    torch.manual_seed(0)
    return Training(UNet(levels=levels), [torch.randn(4, 3, 32, 32)] * 2, mode)


def history(**signs):
    """Sizes of device 0's history since it was switched on, of these actions, with their signs."""
    signs = {"alloc": 1, **(signs or {"free_requested": -1})}
    torch.cuda.synchronize()
    entries = torch.cuda.memory._snapshot()["device_traces"][0]
    return [e["size"] * signs[e["action"]] for e in entries if e["action"] in signs]


class History:
    """Requests by torch's own record: sizes in order, negative where the program freed."""

    def start(self):
        torch.cuda.memory._record_memory_history(context=None, clear_history=True)

    def stop(self):
        requests = history()
        torch.cuda.memory._record_memory_history(enabled=None)
        return requests


def record_steps(training, steps, requests, stats, reset_peaks):
    """`requests` hears them between start() and stop(); `stats()` are taken after each step."""
    requests.start()
    figures = []
    for _ in range(steps):
        reset_peaks()
        training.step()
        figures.append(dict(stats()))
    return {"requests": requests.stop(), "stats": figures}

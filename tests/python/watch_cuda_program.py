"""What test_watch_cuda.py runs over the double: a GPT in torch, which knows nothing of Lowtide.

First on device 0 with torch's native segments, then on device 1 with expandable ones. Prints what
the double counted for each, as JSON.
"""

import json

import torch
from cuda_double_program import Gpt, double
from torch import nn


def train(device):
    with torch.cuda.device(device), nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
        model = Gpt(width=256).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        tokens = torch.randint(0, 256, (8, 64)).cuda()
        for _ in range(3):
            model(tokens, tokens).backward()
            optimizer.step()
            optimizer.zero_grad()
        del model, optimizer
        torch.cuda.empty_cache()
        again = torch.empty(5 << 20, device="cuda")  # after a large part was given back
    return again


def main():
    torch.backends.cudnn.enabled = False
    kept = [train(0)]
    torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
    kept.append(train(1))
    pinned = torch.empty(3 << 20, dtype=torch.uint8, pin_memory=True)
    print(
        json.dumps(
            {
                "devices": [
                    {"live_bytes": double.bytes(i), "peak_bytes": double.largest_bytes(i)}
                    for i in range(2)
                ],
                "pinned": pinned.numel(),
                "mapped": double.calls("cuMemMap"),
                "kept": len(kept),
            }
        )
    )


if __name__ == "__main__":
    main()

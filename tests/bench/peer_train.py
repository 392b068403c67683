#!/usr/bin/env python3
"""Trains a demo model in Python, one step per line on stdin: a peer of scripts/bench_peers.py.

Speaks the protocol of the demo programs' --paced: one JSON line per step with `cpu_ns` (of the
process), `peak_requested_bytes` (of the step, counted by peer_counter.cc) and `loss`. Arms: plain;
checkpoint (torch.utils.checkpoint around each block); selective (the same, but what the block's
matrix products and convolutions gave is kept).
"""

import argparse
import ctypes
import functools
import json
import sys
import time

import numpy as np
import peer_models
import torch
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

KEPT = [
    torch.ops.aten.mm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten.bmm.default,
    torch.ops.aten.convolution.default,
]


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", choices=peer_models.MODELS)
    parser.add_argument("--arm", choices=["plain", "checkpoint", "selective"], default="plain")
    parser.add_argument("--counter", required=True, help="the built peer_counter library")
    parser.add_argument("--text", help="UTF-8 text to learn")
    parser.add_argument("--images", help="images to learn, one per line: pixels, class")
    parser.add_argument("--steps", type=int, default=1 << 20)
    parser.add_argument("--paced", action="store_true", help="as the demo programs; always so here")
    for name in ("batch", "context", "width", "layers", "heads"):
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--dropout", type=float, default=0.0)
    return parser.parse_args()


def text_batches(options):
    with open(options.text, encoding="utf-8") as file:
        text = file.read()
    numbers = {character: number for number, character in enumerate(sorted(set(text)))}
    tokens = torch.tensor([numbers[character] for character in text])
    random = torch.Generator().manual_seed(1)

    def draw():
        starts = torch.randint(
            len(tokens) - options.context - 1, (options.batch,), generator=random
        )
        rows = torch.stack([tokens[start : start + options.context + 1] for start in starts])
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    return draw, len(numbers)


def image_batches(options):
    with open(options.images, encoding="ascii") as file:
        lines = file.read().splitlines()
    values = np.fromstring(",".join(lines), dtype=np.int64, sep=",")
    table = torch.from_numpy(values.reshape(len(lines), -1))
    side = round((table.size(1) - 1) ** 0.5)
    images = ((table[:, :-1] / 255 - 0.13) / 0.31).view(-1, 1, side, side)
    labels = table[:, -1].contiguous()
    random = torch.Generator().manual_seed(1)

    def draw():
        rows = torch.randint(len(labels), (options.batch,), generator=random)
        return images[rows], labels[rows]

    return draw, int(labels.max()) + 1


def runner(arm):
    if arm == "checkpoint":
        return functools.partial(checkpoint, use_reentrant=False)
    contexts = functools.partial(create_selective_checkpoint_contexts, KEPT)
    return functools.partial(checkpoint, use_reentrant=False, context_fn=contexts)


def main():
    options = parse()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    counter = ctypes.CDLL(options.counter)
    counter.lowtide_peer_peak_bytes.restype = ctypes.c_int64
    draw, classes = (image_batches if options.images else text_batches)(options)
    model = peer_models.MODELS[options.program](options, classes)
    if options.arm != "plain":
        model.run = runner(options.arm)
    parameters = list(model.parameters())
    if options.program == "train_resnet":
        optimizer = torch.optim.SGD(
            parameters, lr=0.05, momentum=0.9, weight_decay=1e-4, foreach=False
        )
    else:
        optimizer = torch.optim.AdamW(parameters, lr=3e-4, weight_decay=0.1, foreach=False)

    for index in range(1, options.steps + 1):
        if not sys.stdin.readline():
            break
        inputs, targets = draw()
        counter.lowtide_peer_reset_peak()
        begin = time.process_time_ns()
        optimizer.zero_grad()
        loss = model(inputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=False)
        optimizer.step()
        value = loss.item()
        cpu_ns = time.process_time_ns() - begin
        peak = counter.lowtide_peer_peak_bytes()
        record = {"step": index, "loss": value, "cpu_ns": cpu_ns, "peak_requested_bytes": peak}
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()

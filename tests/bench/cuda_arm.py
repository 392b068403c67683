"""What scripts/bench_allocator.py runs over the CUDA double: one arm of one model, or pair costs.

    cuda_arm.py train MODEL ARM [PLAN]    native, record, load or probe; PLAN is written or read
    cuda_arm.py pairs DOOR                a or b

Prints one line of JSON. cuDNN is off: the double has none.
"""

import ctypes
import json
import pathlib
import sys
import tempfile

import torch
from cuda_double import BUILD, Double
from cuda_double_program import Gpt
from door_a import Door
from training import Training, lasting_storages
from unet import UNet

STEPS = 5
double = Double()


def gpt(layers, width, batch, length, checkpointed=False):
    tokens = torch.randint(0, 4096, (batch, length))
    model = Gpt(layers=layers, width=width, vocabulary=4096, checkpointed=checkpointed)
    return Training(model, [tokens, tokens])


def unet(batch, size):
    images = torch.zeros(batch, 3, size, size)
    return Training(UNet(channels=32, levels=3), [images, images])


MODELS = {
    "GPT 4x256": lambda: gpt(4, 256, 8, 128),
    "GPT 4x256 checkpointed": lambda: gpt(4, 256, 8, 128, True),
    "U-Net 32ch": lambda: unet(4, 96),
    "GPT 12x768": lambda: gpt(12, 768, 4, 256),
    "GPT 12x768 checkpointed": lambda: gpt(12, 768, 4, 256, True),
}


def most_live():
    """The largest sum of requested bytes, by torch's history since the process began."""
    torch.cuda.synchronize()
    live = most = 0
    sizes = {}
    for entry in torch.cuda.memory._snapshot()["device_traces"][0]:
        if entry["action"] == "alloc":
            sizes[entry["addr"]] = entry["size"]
            live += entry["size"]
            most = max(most, live)
        elif entry["action"] == "free_completed":
            live -= sizes.pop(entry["addr"])
    return most


def train(model, arm, plan=None):
    door = Door() if arm in ("record", "load", "probe") else None
    if door:
        door.install()
    if arm == "native":
        torch.cuda.memory._record_memory_history(context=None, max_entries=1 << 22)
    if arm in ("record", "load"):
        door.placement(arm, *([plan] if arm == "load" else []))
    training = MODELS[model]()
    marked = arm in ("record", "load")
    for _ in range(STEPS):
        if marked:
            door.placement("mark")
        training.step()
    figures = {}
    if marked:
        door.placement("mark")
    if arm == "record":
        door.placement("save", plan)
    if arm == "probe":
        probe(door, training)
        figures["after"] = double.largest_bytes()
        figures["native_before"] = training.native_bytes
    if arm == "native":
        figures["peak"] = most_live()
    if door:
        figures["placed"] = door.placed()
    return {
        "reserved": max(double.largest_bytes(), figures.get("native_before", 0)),
        "misuse": double.misuse(),
        **figures,
    }


def probe(door, training):
    door.placement("record")
    door.placement("mark")
    for _ in range(2):
        training.step()
        door.placement("mark")
    door.placement("shadow")
    training.step()
    door.placement("mark")
    training.native_bytes = double.largest_bytes()
    door.engage(lasting_storages(training.model, training.optimizer, *training.inputs))
    training.native_bytes = max(training.native_bytes, double.largest_bytes())
    double.reset_largest()
    for _ in range(3):
        training.step()
        door.placement("mark")


# --- Pair costs -----------------------------------------------------------------------------------

PAIRS, BATCHES, BYTES = 2000, 60, 4096


class PairCost:
    def __init__(self):
        self.library = ctypes.CDLL(str(BUILD / "lib" / "libpair_cost.so"))
        self.library.pair_cost.restype = ctypes.c_double

    def batch(self, own):
        return self.library.pair_cost(int(own), PAIRS, ctypes.c_size_t(BYTES))

    def least(self, between=lambda: None):
        """Of batches of the allocator in use, ns."""
        costs = []
        for _ in range(BATCHES):
            costs.append(self.batch(own=False))
            between()
        return min(costs)

    def compare(self):
        """The least of interleaved batches, ns: torch's native allocator, and the one in use."""
        native, ours = [], []
        for _ in range(BATCHES):
            native.append(self.batch(own=True))
            ours.append(self.batch(own=False))
        return {"native": min(native), "ours": min(ours)}


def pairs(which):
    cost = PairCost()
    if which == "b":
        path = str(BUILD / "lib" / "liblowtide_hooks.so")
        allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "lowtide_malloc", "lowtide_free")
        torch.cuda.memory.change_current_allocator(allocator)
        kept = torch.empty(BYTES, dtype=torch.uint8, device="cuda")
        cost.library.pair_cost_init_native()
        return {"door_b": cost.compare(), "kept": kept.numel()}
    kept = [torch.empty(BYTES, dtype=torch.uint8, device="cuda") for _ in range(200)]
    # Before: with the door's tracker attached the native allocator itself is dearer, and no tracker
    # can be taken back.
    native = cost.least()
    door = Door()
    door.install()
    through = cost.least()

    def mark():
        door.placement("mark")

    with tempfile.TemporaryDirectory() as folder:
        plan = pathlib.Path(folder) / "pairs.placement.json"
        door.placement("record")
        for _ in range(4):
            mark()
            cost.batch(own=False)
        mark()
        door.placement("save", plan)
        door.placement("load", plan)
    mark()
    planned = cost.least(mark)
    placed = door.placed()
    return {
        "through": {"native": native, "ours": through},
        "planned": {"native": native, "ours": planned},
        "hits": placed["hits"] / placed["requests"],
        "kept": len(kept),
    }


def main():
    torch.backends.cudnn.enabled = False
    torch.manual_seed(0)
    what, *arguments = sys.argv[1:]
    print(json.dumps({"train": train, "pairs": pairs}[what](*arguments)), flush=True)


if __name__ == "__main__":
    main()

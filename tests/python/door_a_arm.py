"""What all cases of door_a_program.py share: which arm this is, and where it and torch disagree."""

import sys

import torch
from cuda_double import Double
from door_a import Door, Recorder

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
    return door.disagreement(stats(device), device)


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


def current_disagreement():
    """Peaks and counts begin with the installation: until settle() only current figures agree."""
    return {
        name: pair
        for name, pair in disagreement().items()
        if name not in ("active_bytes.peak", "blocks.peak", "alloc_calls", "free_calls")
    }


def failure(call):
    try:
        call()
    except torch.OutOfMemoryError as error:
        return str(error)
    return None

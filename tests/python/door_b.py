"""By ctypes: door B (hooks/pluggable_door.h) behind torch's pluggable allocator (DOORS.md)."""

import ctypes
import json

import torch
from cuda_double import BUILD
from door_a import Recorder

LIBRARY = str(BUILD / "lib" / "liblowtide_hooks.so")
SETTERS = {
    "set_init_fn": "lowtide_init",
    "set_reset_fn": "lowtide_empty_cache",
    "set_memory_fraction_fn": "lowtide_set_memory_fraction",
    "set_base_alloc_fn": "lowtide_base_allocation",
    "set_record_stream_fn": "lowtide_record_stream",
    "set_begin_allocate_to_pool": "lowtide_begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "lowtide_end_allocate_to_pool",
    "set_release_pool": "lowtide_release_pool",
}
hooks = ctypes.CDLL(LIBRARY)
hooks.lowtide_stats_json.restype = ctypes.c_char_p
hooks.lowtide_malloc_or_null.restype = ctypes.c_void_p
hooks.lowtide_last_error.restype = ctypes.c_char_p


def install(path=LIBRARY, prefix=""):
    """`prefix`: of functions of another library that only pass on."""
    pluggable = torch.cuda.memory.CUDAPluggableAllocator(
        str(path), prefix + "lowtide_malloc", prefix + "lowtide_free"
    )
    inner = pluggable.allocator()
    for setter, function in SETTERS.items():
        address = ctypes.cast(getattr(hooks, function), ctypes.c_void_p).value
        getattr(inner, setter)(address)
    torch.cuda.memory.change_current_allocator(pluggable)


def stats(device=0):
    return json.loads(hooks.lowtide_stats_json(device))


def reset_peaks(device=0):
    hooks.lowtide_reset_peak_stats(device)


def reset_accumulated(device=0):
    hooks.lowtide_reset_accumulated_stats(device)


class Forwarded:
    """Requests to our functions, as training.History."""

    def __init__(self):
        self.recorder = Recorder()

    def start(self):
        self.recorder.take()

    def stop(self):
        return [size for size, _ in self.recorder.take()]

"""By ctypes: door A (hooks/torch_cuda_door.h), and the recorder in tests/support.

scripts/device_door_a.py uses the door on a GPU, too.
"""

import ctypes
import json

from cuda_double import BUILD

PRESSURE = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)
NO_LIMIT = -1


class Refused(Exception):
    """A call of the door that returned its error."""


def refusal(call, *arguments):
    """Its error; None where it was not refused."""
    try:
        call(*arguments)
    except Refused as error:
        return str(error)
    return None


class Door:
    def __init__(self, library=BUILD / "lib" / "liblowtide_cuda.so"):
        self.library = ctypes.CDLL(str(library))
        self.library.lowtide_cuda_error.restype = ctypes.c_char_p
        self.library.lowtide_cuda_stats_json.restype = ctypes.c_char_p
        self.library.lowtide_cuda_placement_json.restype = ctypes.c_char_p
        self._callbacks = {}  # as long as the library may call them

    def _call(self, name, *arguments):
        if getattr(self.library, name)(*arguments) != 0:
            raise Refused(self.library.lowtide_cuda_error().decode())

    def install(self):
        self._call("lowtide_cuda_install")

    def uninstall(self):
        self._call("lowtide_cuda_uninstall")

    def installed(self):
        return bool(self.library.lowtide_cuda_installed())

    def set_limit(self, count, device=0):
        self._call("lowtide_cuda_set_limit", device, ctypes.c_int64(count))

    def set_pressure(self, free_memory, device=0):
        """`free_memory(need_bytes, request_bytes)` returns the bytes it freed; None: no more."""
        callback = ctypes.cast(None, PRESSURE)
        if free_memory:
            callback = PRESSURE(lambda _device, need, request, _context: free_memory(need, request))
        self._call("lowtide_cuda_set_pressure", device, callback, None)
        self._callbacks[device] = callback

    def stats(self, device=0):
        text = self.library.lowtide_cuda_stats_json(device)
        if text is None:
            raise Refused(self.library.lowtide_cuda_error().decode())
        return json.loads(text)

    def placement(self, call, *arguments, device=0):
        """lowtide_cuda_placement_<call>: record, stop, mark, save, load, shadow, disengage."""
        arguments = [str(argument).encode() for argument in arguments]
        self._call(f"lowtide_cuda_placement_{call}", device, *arguments)

    def engage(self, storages=(), device=0):
        """Of tensors to be moved: their `untyped_storage()`."""
        addresses = (ctypes.c_void_p * len(storages))(*(storage._cdata for storage in storages))
        self._call(
            "lowtide_cuda_placement_engage", device, addresses, ctypes.c_int64(len(storages))
        )

    def placed(self, device=0):
        text = self.library.lowtide_cuda_placement_json(device)
        if text is None:
            raise Refused(self.library.lowtide_cuda_error().decode())
        return json.loads(text)

    def disagreement(self, torchs, device=0):
        """Figures of the ledger that are not those of `memory_stats`, to the byte: both."""
        ours = self.stats(device)
        pairs = {
            "active_bytes.current": (
                ours["active_bytes"]["current"],
                "requested_bytes.all.current",
            ),
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


class Recorder:
    """tests/support/cuda_recorder.cc: hears the ledger of door A, and requests of door B."""

    def __init__(self):
        self.path = BUILD / "lib" / "libcuda_recorder.so"
        self.library = ctypes.CDLL(str(self.path))
        self.library.recorder_take.restype = ctypes.c_uint64
        self.library.recorder_pool_bytes.restype = ctypes.c_int64

    def start(self, device=0):
        self.library.recorder_start(device)

    def stop(self, device=0):
        self.library.recorder_stop(device)
        return self.take()

    def take(self, capacity=1 << 20):
        """(bytes, stream) of each event; bytes are negative where the program freed."""
        sizes = (ctypes.c_int64 * capacity)()
        streams = (ctypes.c_void_p * capacity)()
        count = self.library.recorder_take(sizes, streams, ctypes.c_uint64(capacity))
        if count > capacity:
            raise OverflowError(f"{count} events, room for {capacity}")
        return [(sizes[i], streams[i] or 0) for i in range(count)]

    def pool_bytes(self):
        return self.library.recorder_pool_bytes()

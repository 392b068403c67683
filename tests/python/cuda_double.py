"""The CUDA double from Python: how a program is started over it, and its counters from within.

The double is tests/doubles/cuda (cuda_double.h says what each counter means). Values are garbage by
contract and cuDNN is not doubled: programs set `torch.backends.cudnn.enabled = False`.
"""

import ctypes
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("LOWTIDE_BUILD") or ROOT / "build" / "dev")
LIBRARIES = ("libcuda_double.so", "libcuda_double_driver.so", "libcuda_double_nvml.so")


def environment(watched_by=None, **settings):
    """The caller's environment with the double preloaded; LOWTIDE_DOUBLE_* by their last words.
    `watched_by`: a library in front of the double."""
    paths = [BUILD / "lib" / name for name in LIBRARIES]
    if watched_by is not None:
        paths.insert(0, watched_by)
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"{path} is missing; build the targets cuda_double*")
    clean = {key: value for key, value in os.environ.items() if not key.startswith("LOWTIDE_")}
    clean.update({"OMP_NUM_THREADS": "1", "LD_PRELOAD": ":".join(map(str, paths))})
    clean["LOWTIDE_BUILD"] = str(BUILD)  # for what the program loads besides
    clean.update({f"LOWTIDE_DOUBLE_{key}": str(value) for key, value in settings.items()})
    return clean


def run(program, *arguments, timeout=600, extra=None, **settings):
    """Runs a Python program over the double; the finished process, with text."""
    return subprocess.run(
        [sys.executable, str(program), *map(str, arguments)],
        env={**environment(**settings), **(extra or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def run_case(name, case):
    """For programs over the double: what the case returns, or its error, as one line of JSON."""
    try:
        result = case()
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps({"case": name, **result}), flush=True)


class Cases:
    """What a finished program of run_case() said of each case, by its name."""

    def __init__(self, finished):
        self.finished = finished
        lines = [line for line in finished.stdout.splitlines() if line.startswith("{")]
        self.cases = {case.pop("case"): case for case in map(json.loads, lines)}

    def __call__(self, name):
        tail = self.finished.stderr[-4000:]
        assert name in self.cases, f"{name} did not run:\n{tail}"
        assert "error" not in self.cases[name], f"{self.cases[name]}\n{tail}"
        return self.cases[name]

    def assert_clean(self):
        """The program came to its end, and the double saw nothing wrong."""
        tail = self.finished.stderr[-4000:]
        assert self("end") == {"misuse": 0, "first_misuse": "", "missing": 0}, tail
        assert self.finished.returncode == 0, tail


class Launch(ctypes.Structure):
    _fields_ = [
        ("sequence", ctypes.c_uint64),
        ("correlation", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("host_ns", ctypes.c_int64),
        ("name", ctypes.c_char_p),
        ("work", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("stream", ctypes.c_int32),
        ("thread", ctypes.c_int32),
    ]


class Double:
    """The counters of the double that is loaded into this process."""

    def __init__(self):
        self.library = ctypes.CDLL(None)
        for name in ("bytes", "largest_bytes", "calls", "missing", "misuse", "launches"):
            getattr(self.library, f"lowtide_double_{name}").restype = ctypes.c_uint64
        self.library.lowtide_double_first_misuse.restype = ctypes.c_char_p
        self.library.lowtide_double_read_launches.restype = ctypes.c_uint64

    def bytes(self, device=0):
        return self.library.lowtide_double_bytes(device)

    def largest_bytes(self, device=0):
        return self.library.lowtide_double_largest_bytes(device)

    def reset_largest(self, device=0):
        self.library.lowtide_double_reset_largest(device)

    def set_memory(self, count, device=0):
        self.library.lowtide_double_set_memory(device, ctypes.c_uint64(count))

    def calls(self, function):
        return self.library.lowtide_double_calls(function.encode())

    def verdict(self):
        """What Cases.assert_clean() looks at; the last case of a program, by the name "end"."""
        return {
            "misuse": self.misuse(),
            "first_misuse": self.first_misuse(),
            "missing": self.missing(),
        }

    def missing(self):
        return self.library.lowtide_double_missing()

    def misuse(self):
        return self.library.lowtide_double_misuse(None)

    def first_misuse(self):
        return self.library.lowtide_double_first_misuse(None).decode()

    def set_delay(self, ticks):
        self.library.lowtide_double_set_delay(ctypes.c_uint64(ticks))

    def advance(self, ticks):
        self.library.lowtide_double_advance(ctypes.c_uint64(ticks))

    def launches(self):
        return self.library.lowtide_double_launches()

    def launches_since(self, first):
        count = self.launches() - first
        buffer = (Launch * count)()
        read = self.library.lowtide_double_read_launches(
            ctypes.c_uint64(first), buffer, ctypes.c_uint64(count)
        )
        return list(buffer[:read])

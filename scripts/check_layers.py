#!/usr/bin/env python3
"""Checks that no room includes what its layer forbids.

Usage: check_layers.py [ROOT]. Prints `file:line: rule` for each breach and exits 1 if there is one.
The tables below are the rule book; a room that is not in them is an error too.
"""

import pathlib
import re
import sys

# Room -> rooms it may include. The order is the order of the layers, low to high.
MAY_INCLUDE = {
    "src/core": set(),
    "planner": {"src/core"},
    "hooks": {"src/core"},
    "profiler": {"src/core"},
    "src/cli": {"src/core", "planner", "hooks"},
    "src/runtime": {"src/core", "planner", "hooks", "profiler"},
    "src/lowtide": {"src/core", "planner", "hooks", "profiler", "src/runtime"},
}
# First part of an include path -> room.
PREFIX = {room.removeprefix("src/"): room for room in MAY_INCLUDE}

TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
CUDA = re.compile(r"^(cuda|cupti|nvtx|nvToolsExt|cublas|nvml)")
# What compiles against Lowtide from outside: costs 12-24 s of compile time, or differs in layout.
HEAVY = re.compile(r"^(torch/(torch|all|extension)\.h|ATen/record_function\.h)$")
TORCH_ROOMS = {"src/runtime", "src/lowtide"}
CUDA_ROOMS = {"hooks", "profiler", "src/runtime"}
PUBLIC_HEADERS = {"src/runtime/session.h"}  # of src/runtime; every header of the other rooms

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def breach(room, path, quote, target):
    """The rule that `#include target` in `path` of `room` breaks, or None."""
    if quote == '"':
        other = PREFIX.get(target.split("/")[0]) if "/" in target else None
        if target.startswith("tests/"):
            return f"{room} must not include tests: {target}"
        if other and other != room and other not in MAY_INCLUDE[room]:
            allowed = ", ".join(sorted(MAY_INCLUDE[room])) or "no other room"
            return f"{room} may include {allowed}, not {other}: {target}"
    if TORCH.match(target) and room not in TORCH_ROOMS and not path.name.startswith("torch_"):
        return f"{room} has no torch headers outside torch_* files: {target}"
    if CUDA.match(target) and room not in CUDA_ROOMS:
        return f"{room} has no CUDA headers: {target}"
    public = path.suffix == ".h" and (room != "src/runtime" or path.as_posix() in PUBLIC_HEADERS)
    if HEAVY.match(target) and public:
        return f"public headers do not include {target}"
    return None


def check(root):
    """All breaches under `root`, as `file:line: rule`, and the number of files read."""
    breaches, files = [], 0
    for path in sorted((root / "src").glob("*/")):
        if path.is_dir() and path.relative_to(root).as_posix() not in MAY_INCLUDE:
            breaches.append(f"{path.relative_to(root)}: not a room of the layer table")
    for room in MAY_INCLUDE:
        for path in sorted((root / room).rglob("*")):
            if path.suffix not in {".h", ".cc", ".c", ".def"}:
                continue
            files += 1
            relative = path.relative_to(root)
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
                match = INCLUDE.match(line)
                rule = match and breach(room, relative, match[1], match[2])
                if rule:
                    breaches.append(f"{relative}:{number}: {rule}")
    return breaches, files


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    breaches, files = check(root)
    for text in breaches:
        print(text, file=sys.stderr)
    if not files:
        print(f"no sources under {root}: is this the root of the tree?", file=sys.stderr)
        return 1
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())

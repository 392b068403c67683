#!/usr/bin/env python3
"""Writes entry points for what torch and Triton call and the CUDA double does not model.

Usage: make_stubs.py OUTPUT [TORCH_DIR]

All are weak, so that the double's own functions come first. Runtime and driver functions name
themselves once and fail as "not supported"; computing cuBLAS functions are logged as launches.
Without TORCH_DIR there is nothing to import and no stub. Names come from torch itself, and from the
Triton beside it, so that another minor version needs no change here.
"""

import pathlib
import re
import subprocess
import sys

# Kind of stub by the name of the function; the first match counts.
KINDS = [
    (re.compile(r"(__)?cuda[A-Z]\w*"), "missing_runtime_stub"),
    (re.compile(r"cublas(Lt\w*|(Get|Set|Create|Destroy)\w*)"), "missing_blas_stub"),
    (re.compile(r"cublas[A-Z]\w*"), "blas_launch"),
    (re.compile(r"cu(?!File|Complex)[A-Z]\w*"), "missing_driver_stub"),
]

HEAD = """\
// Made by make_stubs.py from what torch and Triton call.
#include "calls.h"
#define WEAK extern "C" __attribute__((weak))
"""


def imported(library):
    """Undefined symbols of a library, without their versions."""
    done = subprocess.run(
        ["nm", "--dynamic", "--undefined-only", "--without-symbol-versions", library],
        check=True,
        capture_output=True,
        text=True,
    )
    return {line.split()[-1] for line in done.stdout.splitlines()}


def asked_for_by_name(header):
    """Driver functions that torch looks up while it runs."""
    return set(re.findall(r"_\((cu[A-Z]\w+),", header.read_text())) if header.exists() else set()


def called_by_triton(folder):
    """Driver functions in the sources that Triton compiles while it runs."""
    header = folder / "include" / "cuda.h"
    if not header.exists():
        return set()
    declared = set(re.findall(r"CUresult CUDAAPI (cu\w+)\(", header.read_text()))
    sources = "".join(path.read_text() for path in folder.glob("driver.*"))
    return declared & set(re.findall(r"\bcu[A-Z]\w+", sources))


def stub(name):
    """The definition for one imported symbol; empty for what is no business of the double."""
    for pattern, function in KINDS:
        if pattern.fullmatch(name):
            launch = function == "blas_launch"
            parameter, argument = ("void* handle", "handle, ") if launch else ("", "")
            return (
                f"WEAK int {name}({parameter}) {{\n  CUDA_DOUBLE_CALL();\n"
                f"  return cuda_double::{function}({argument}__func__);\n}}\n"
            )
    return ""


def main():
    output = pathlib.Path(sys.argv[1])
    names = set()
    if len(sys.argv) > 2:
        torch = pathlib.Path(sys.argv[2])
        for library in sorted((torch / "lib").glob("*.so")):
            names |= imported(library)
        names |= asked_for_by_name(torch / "include" / "c10" / "cuda" / "driver_api.h")
        names |= called_by_triton(torch.parent / "triton" / "backends" / "nvidia")
    output.write_text(HEAD + "".join(stub(name) for name in sorted(names)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Judges a solution of `lowtide place`: check_placement.py INSTANCE.csv SOLUTION.csv [CAPACITY].

Shares no code with the product. Prints the height; exits 1 with the first fault found.
"""

import csv
import itertools
import sys


def height_of(instance, solution, capacity=None):
    """The height, or a ValueError for a solution that is none."""
    with open(instance, newline="") as asked, open(solution, newline="") as given:
        asked, given = list(csv.DictReader(asked)), list(csv.DictReader(given))
    if asked != [{k: v for k, v in row.items() if k != "offset"} for row in given]:
        raise ValueError("the solution's buffers are not the instance's")
    spans = [[int(row[key]) for key in ("lower", "upper", "offset", "size")] for row in given]
    for (lower, upper, offset, size), (start, end, other, length) in itertools.combinations(
        spans, 2
    ):
        if lower < end and start < upper and offset < other + length and other < offset + size:
            raise ValueError(f"{size} bytes at {offset} and {length} at {other} overlap")
    height = max(offset + size for _, _, offset, size in spans)
    if min(span[2] for span in spans) < 0 or (capacity is not None and height > capacity):
        raise ValueError(f"offset below 0, or height {height} over the capacity {capacity}")
    return height


if __name__ == "__main__":
    try:
        print(height_of(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:4])))
    except ValueError as error:
        sys.exit(str(error))

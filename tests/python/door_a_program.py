"""What test_door_a.py runs over the CUDA double, once per arm: `native` is torch alone, `door` has
door A. Each case prints one JSON line; the test compares the arms.

In the door's arm each line also says where the ledger and torch's own statistics disagree. Names of
cases after the arm run only those.
"""

import sys

import door_a_budget
import door_a_features
import torch
from cuda_double import run_case
from door_a_arm import disagreement, door, double, settle


def judged(case):
    settle()
    return {**case(), "disagreement": disagreement()}


def main():
    torch.backends.cudnn.enabled = False
    if door:
        door.install()
    only = sys.argv[2:]
    for case in door_a_features.CASES + door_a_budget.CASES:
        if only and case.__name__ not in only:
            continue
        run_case(case.__name__, lambda case=case: judged(case))
    run_case("end", double.verdict)


if __name__ == "__main__":
    main()

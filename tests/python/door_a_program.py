"""What test_door_a.py runs over the CUDA double, once per arm: `native` is torch alone, `door` has
door A. Each case prints one JSON line; the test compares the arms.

In the door's arm each line also says where the ledger and torch's own statistics disagree. Names of
cases after the arm run only those.
"""

import json
import sys

import door_a_budget
import door_a_features
import torch
from door_a_arm import disagreement, door, double, settle


def main():
    torch.backends.cudnn.enabled = False
    if door:
        door.install()
    only = sys.argv[2:]
    for case in door_a_features.CASES + door_a_budget.CASES:
        if only and case.__name__ not in only:
            continue
        settle()
        try:
            result = case()
            result["disagreement"] = disagreement()
        except Exception as error:
            result = {"error": f"{type(error).__name__}: {error}"}
            if only:
                raise
        print(json.dumps({"case": case.__name__, **result}), flush=True)
    end = {"case": "end", "misuse": double.misuse(), "first_misuse": double.first_misuse()}
    print(json.dumps({**end, "missing": double.missing()}), flush=True)


if __name__ == "__main__":
    main()

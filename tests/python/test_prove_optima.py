"""scripts/prove_optima.py: a relaxation solved in whole numbers, and what counts as proven."""

import pathlib
import sys

import prove_optima
import pytest


def model(**changes):
    """Three values of 20 bytes alive at one moment; dropping them costs 30, 10 and 20 ns."""
    base = {
        "base_ns": 0,
        "cost_ns": [30, 10, 20],
        "limit": [1, 1, 1],
        "rows": [],
        "least": [],
        "base_bytes": [0, 100, 0],
        "spans": [[i, 1, 2, -20] for i in range(3)],
        "choices": [[7, 0, -1], [8, 1, -1], [9, 2, -1]],
    }
    return base | changes


@pytest.mark.parametrize(
    ("level", "cost", "dropped"),
    [(100, 0, []), (80, 10, ["8"]), (70, 30, ["8", "9"]), (40, 60, ["7", "8", "9"])],
)
def test_the_cheapest_whole_plan_is_found(level, cost, dropped):
    bound, decisions = prove_optima.solve(model(), level, seconds=20)
    assert bound in (cost - 1, cost)  # below by the solver's tolerance
    assert decisions == dropped


def test_rows_and_offset_count():
    bound, decisions = prove_optima.solve(
        model(rows=[[[0, 1], [1, -1]]], least=[0], base_ns=-5), 80, seconds=20
    )
    assert decisions == ["9"]  # the cheapest would bring the dearest with it
    assert bound in (14, 15)


def test_a_freed_value_is_named_so():
    _, decisions = prove_optima.solve(
        model(choices=[[7, 0, -1], [8, 1, 2], [9, 2, -1]]), 60, seconds=20
    )
    assert decisions == ["8:freed", "9"]


def test_an_impossible_level_has_no_bound():
    assert prove_optima.solve(model(), 39, seconds=20) == (None, None)


# A stand-in for planner_bench: simulates everything at 50 bytes and 40 ns, finds 30 ns by search.
TOOL = """
import json, sys
answers = {
    "simulate": {"peak_bytes": PEAK, "extra_ns": 40},
    "frontier": {"budgets": [{"extra_ns": 30}]},
}
print(json.dumps(answers[sys.argv[1]]))
"""


def test_what_is_not_proven_shows_both_ends(tmp_path):
    script = tmp_path / "tool"
    script.write_text(f"#!{sys.executable}\n" + TOOL.replace("PEAK", "60"))
    script.chmod(0o755)
    found, bound = prove_optima.prove(script, pathlib.Path("x"), "single", 80, model(), 20, "s{}")
    assert found == 30
    assert bound in (9, 10)


def test_a_simulated_plan_at_the_bound_is_proven(tmp_path):
    script = tmp_path / "tool"
    script.write_text(f"#!{sys.executable}\n" + TOOL.replace("PEAK", "60"))
    script.chmod(0o755)
    found, bound = prove_optima.prove(
        script, pathlib.Path("x"), "single", 60, model(cost_ns=[90, 10, 30]), 20, "s{}"
    )
    assert found == bound == 40

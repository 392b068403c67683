"""Planned addresses under door A, over the CUDA double.

A run records and saves the plan of the whole program, a second one follows it and then leaves it in
every way; a third plans while it runs.

What is reserved is the double's count; what is live at most, torch's own statistics of the run
without an arena. door_a_placement.py has the cases.
"""

import pathlib

import cuda_double
import pytest

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20


def run(*arguments):
    return cuda_double.Cases(cuda_double.run(HERE / "door_a_placement.py", *arguments))


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    return tmp_path_factory.mktemp("placement") / "gpt.placement.json"


@pytest.fixture(scope="module")
def recorded(plan):
    return run("record", plan)


@pytest.fixture(scope="module")
def loaded(recorded, plan):
    recorded("record")
    return run("load", plan)


@pytest.fixture(scope="module")
def threaded(recorded, plan):
    recorded("record")
    return run("threads", plan)


@pytest.fixture(scope="module")
def probed():
    return run("probe")


def test_nothing_was_misused_or_missing(recorded, loaded, threaded, probed):
    for cases in (recorded, loaded, threaded, probed):
        cases.assert_clean()


def test_a_loaded_plan_serves_every_request_and_reserves_the_peak(recorded, loaded):
    native, placed = recorded("record"), loaded("load")
    assert placed["waiting"] == "waiting"
    door = placed["placed"]
    assert door["state"] == "engaged" and door["hits"] == door["requests"] > 1000
    assert door["steps"] == 4 and door["bad_steps"] == 0
    peak = native["requested_peak"]
    assert native["largest"] > 1.05 * peak, "the native allocator leaves something to gain"
    assert placed["largest"] <= peak + 4 * MIB


def test_statistics_are_of_blocks_not_of_the_arena(recorded, loaded):
    native, placed = recorded("record"), loaded("load")
    for name in ("requested", "requested_peak", "blocks", "active", "small", "allocations"):
        assert placed[name] == native[name], name
    assert placed["reserved"] == placed["bytes"]
    # The native allocator gives up to 1 MiB more than was asked for; the arena does not.
    assert placed["requested"] <= placed["allocated"] <= native["allocated"]
    assert placed["requested_peak"] <= placed["allocated_peak"] <= native["allocated_peak"]
    assert loaded("ledger")["disagreement"] == {}


def test_peaks_and_sums_can_be_reset(loaded):
    case = loaded("peaks")
    assert case["wrong"] == {}, "the ledger and torch's statistics agree to the byte"
    assert case["during"]["requested_peak"] - case["before"]["requested_peak"] == 6 * MIB
    assert case["after"]["requested_peak"] == case["during"]["requested"]
    assert case["reset"]["requested_peak"] == case["reset"]["requested"]
    assert case["before"]["allocations"] == 0 and case["after"]["allocations"] == 2


def test_a_snapshot_shows_the_arenas_blocks(loaded):
    case = loaded("snapshot")
    assert case["blocks"] > 100
    assert case["allocated"] == case["by_blocks"] == 0, "sums are those of the statistics"
    assert set(case["gaps"]) == {0}, "segments are covered by their blocks"


def test_a_step_out_of_shape_costs_bytes_and_the_next_are_as_planned(loaded):
    steps = loaded("divergence")
    whole = steps["plain"]["requests"]
    assert steps["plain"]["hits"] == whole
    larger = steps["larger"]
    assert larger["hits"] < whole and larger["native"] > 0
    assert 0 < larger["growth"] == larger["reported"]
    assert steps["after_larger"]["hits"] >= 0.97 * whole, "its loss lives on in the next"
    assert steps["extra"]["hits"] == whole < steps["extra"]["requests"]
    assert steps["evaluation"]["native"] == 0, "it fits into the idle arena"
    for name in ("extra", "evaluation", "with_evaluation"):
        assert steps[f"after_{name}"]["hits"] == whole, name
    assert steps["after_smaller"]["hits"] >= 0.97 * whole
    assert steps["after_smaller"]["reported"] == larger["growth"], "no other step made it grow"
    assert {step["state"] for step in steps.values() if "state" in step} == {"engaged"}


def test_record_stream_makes_the_arenas_events(loaded):
    case = loaded("record_stream")
    assert case["placed"] and case["again"]
    assert case["events"] == 1, "of the other stream, and none of the block's own"
    assert case["waiting"] == 1 and not case["early"]
    assert case["five"] == [True, 5]


def test_captures_and_pools_are_the_native_allocators(loaded):
    case = loaded("bypass")
    assert case["source"] and case["outside"] == [True, True]
    assert case["bypassed"] == 2 and case["served"] == 1


def test_raw_blocks_and_frees_by_address(loaded):
    case = loaded("raw_calls")
    assert case["raw_outside"] and case["placed"]
    assert case["freed"] == [1, 1] and case["invalid_frees"] == 1


def test_budget_and_handler_go_on_working(loaded):
    case = loaded("budget")
    assert case["count"] > 10
    assert len(case["asked"]) == 1, "what it freed in the arena was enough"
    assert case["served"] and case["late"] == 1
    assert "CUDA out of memory" in case["message"] and "Lowtide: budget" in case["message"]
    assert f"{case['count']} x 4.0 MiB" in case["message"], "holders are blocks, not the arena"


def test_threads_and_streams(threaded):
    assert threaded("threads") == {"errors": [], "disagreement": {}}


def test_bad_input_is_refused_in_one_line(loaded):
    case = loaded("refusals")
    assert "tensors live at planned addresses" in case["uninstall"]
    assert "nothing was recorded" in case["shadow"]
    assert "not ready to engage but 'engaged'" in case["engage"]
    assert "/nowhere/a.json" in case["load"]
    assert "no CUDA device 7" in case["device"]


def test_an_idle_arena_goes_back_before_an_error(loaded):
    case = loaded("leave")
    assert case["served"] > case["kept"] > 100 * MIB
    assert case["state"] == "off" and case["reason"] == "its memory was given back"
    assert case["reserved"] == 0


def test_a_probe_engages_only_where_it_lowers_what_is_reserved(probed):
    case = probed("no_gain")
    assert case["states"] == ["shadow", "ready"]
    assert (
        "placement would reserve 4.0 MiB, the native allocator reserves 2.0 MiB" in case["refused"]
    )
    assert case["still"] == "ready" and case["after"] == "off"
    assert case["growth"] == 0


def test_a_probe_moves_the_parameters_and_follows_its_plan(probed):
    case = probed("probe")
    assert case["states"] == ["shadow", "ready"]
    assert case["moved"] == {"same": True, "placed": True}
    native, after = case["native"], case["after"]
    assert after["state"] == "engaged" and after["bad_steps"] == 0
    assert after["hits"] == after["requests"] > 900
    figures = case["figures"]
    assert figures["largest"] <= native["largest"], "also while it moved"
    # Besides the arena, 2 MiB that blocks of the case before hold.
    assert figures["bytes"] <= native["requested_peak"] + 6 * MIB
    assert figures["requested_peak"] == native["requested_peak"]
    assert case["disagreement"] == {}

"""torch's real CUDA code over the CUDA double: memory sequences are real, values are garbage."""

import importlib.metadata
import importlib.util
import pathlib

import cuda_double
import pytest

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
GIB = 1 << 30


@pytest.fixture(scope="module")
def finished():
    """One run of all cases, of which most tests look at one."""
    torch = pathlib.Path(importlib.util.find_spec("torch").origin).parent  # not imported: slow
    if not (torch / "lib" / "libtorch_cuda.so").exists():
        pytest.fail(
            f"torch {importlib.metadata.version('torch')} has no CUDA half, which these tests run. "
            "Fix: scripts/setup brings one; or set LOWTIDE_VENV to an environment that has it."
        )
    return cuda_double.run(HERE / "cuda_double_program.py", MEMORY=4 * GIB, DEVICES=2, REPORT=1)


@pytest.fixture(scope="module")
def case(finished):
    return cuda_double.Cases(finished)


def test_torch_sees_the_devices(case):
    seen = case("available")
    assert seen["available"] and seen["devices"] == 2
    assert "double" in seen["name"]
    assert seen["capability"] == [9, 0]
    assert seen["memory"] == [4 * GIB, 4 * GIB]


def test_the_program_ends_and_says_double(case, finished):
    case.assert_clean()
    banner, *rest = [line for line in finished.stderr.splitlines() if "CUDA double" in line]
    assert "values are garbage" in banner
    assert any("report at exit" in line for line in rest)
    assert "misuse: none" in finished.stderr


@pytest.mark.parametrize("name", ["train", "train_checkpointed"])
def test_gpt_trains_and_its_steps_repeat(case, name):
    trained = case(name)
    steps = trained["steps"]
    assert trained["reserved"] == trained["bytes"] > 0
    assert [step["reserved_peak"] for step in steps] == [step["largest_bytes"] for step in steps]
    assert steps[2] == steps[3], "steady steps are the same"
    for what in ("blas", "dropouts", "softmax", "optimizer"):
        assert steps[3][what] > 0, what
    assert steps[3]["threads"] == 2, "backward launches from its own thread"


def test_checkpointing_recomputes_and_takes_less(case):
    plain, checkpointed = case("train")["steps"][3], case("train_checkpointed")["steps"][3]
    assert checkpointed["launches"] > plain["launches"]
    assert checkpointed["blas"] > plain["blas"]
    assert checkpointed["dropouts"] == 2 * plain["dropouts"]
    assert checkpointed["peak"] < plain["peak"]


def test_empty_cache_gives_back(case):
    figures = case("empty_cache")
    for moment in ("full", "freed", "emptied"):
        assert figures[moment]["reserved"] == figures[moment]["bytes"]
    assert figures["freed"]["bytes"] == figures["full"]["bytes"]
    assert figures["emptied"]["bytes"] <= figures["full"]["bytes"] - 90 * MIB
    assert figures["frees"] >= 3


def test_out_of_memory_is_torchs_own_error(case):
    figures = case("out_of_memory")
    assert "CUDA out of memory. Tried to allocate 20.00 MiB" in figures["message"]
    assert figures["retries"] >= 1
    assert figures["after"] == 45 * MIB


def test_expandable_segments_map_and_unmap(case):
    figures = case("expandable_segments")
    for moment in ("before", "full", "emptied"):
        assert figures[moment]["reserved"] == figures[moment]["bytes"]
    assert figures["full"]["bytes"] == figures["before"]["bytes"] + 60 * MIB
    assert figures["emptied"]["bytes"] == figures["before"]["bytes"]
    assert figures["read"] == 0
    # torch 2.11 asks once for handles of a kind that the double has not.
    assert figures["created"] in (figures["mapped"], figures["mapped"] + 1)
    assert figures["mapped"] > 0
    assert figures["unmapped"] > 0


def test_a_graph_is_captured_and_replayed(case):
    figures = case("graph")
    assert figures["captured"] == 0 and figures["untouched"] == 0
    assert figures["replayed"] >= 3
    assert figures["copied"] == 7
    assert figures["reserved"] == figures["bytes"]


def test_record_stream_makes_an_event_and_holds_the_block(case):
    recorded, plain = case("record_stream")["recorded"], case("record_stream")["plain"]
    assert recorded == {"events": 1, "during": False, "after": True}
    assert plain["events"] == 0 and plain["during"]


def test_devices_have_their_own_memory(case):
    figures = case("streams_and_devices")
    assert figures["query"] and figures["generator"]
    assert figures["other_device"] == figures["reserved"] == 2 * MIB
    assert figures["value"] == 0

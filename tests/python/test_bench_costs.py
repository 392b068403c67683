"""bench_costs: both plans must really be made with their own cost model."""

import json

import bench_costs
import pytest


def op(**fields):
    return {"host_ns": 70, "device_ns": 30, "replay_ns": 40, "flops": 0} | fields


def test_flops_price_the_recomputation_too(tmp_path):
    source, target = tmp_path / "measured.json", tmp_path / "priced.json"
    source.write_text(json.dumps({"ops": [op(flops=5000), op(), op(replay_ns=0)]}))
    assert bench_costs.priced_by_flops(source, target)
    for priced, flops in zip(json.loads(target.read_text())["ops"], (5000, 1, 1), strict=True):
        assert priced["host_ns"] + priced["device_ns"] == flops
        # Where a measured time of recomputation is left, the planner goes by that.
        assert priced["replay_ns"] == 0


def test_a_trace_without_flops_is_not_priced(tmp_path):
    source = tmp_path / "measured.json"
    source.write_text(json.dumps({"ops": [op()]}))
    assert not bench_costs.priced_by_flops(source, tmp_path / "priced.json")


@pytest.mark.parametrize("verdict", ["ok", "wrong time", "wrong peak"])
def test_only_the_time_of_a_plan_may_be_mispredicted(monkeypatch, verdict):
    def lowtide(verb, *_arguments, expect=(0,)):
        said = {"verdict": verdict, "detail": "", "recompute_ns": 123}
        return json.dumps(said) if verb == "check" else "planned"

    monkeypatch.setattr(bench_costs, "lowtide", lowtide)
    if verdict == "wrong peak":
        with pytest.raises(RuntimeError, match="wrong peak"):
            bench_costs.extra_ns("trace", "priced", 1000, "lowtide", "plan")
    else:
        assert bench_costs.extra_ns("trace", "priced", 1000, "lowtide", "plan") == 123

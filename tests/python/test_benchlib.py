"""benchlib: a bench must not be able to pass by accident."""

import json

import benchlib
import numpy as np
import pytest


def make(tmp_path, **options):
    return benchlib.Bench("sample", directory=tmp_path, **options)


def test_all_requirements_met_exits_0_and_writes_the_figures(tmp_path, capsys):
    bench = make(tmp_path)
    bench.require("peak", "10 B", "<= 12 B", True)
    bench.figure("ratio", benchlib.Interval(1.0, 0.9, 1.1, 20))
    bench.figure("peaks", np.array([1, 2]))
    assert bench.finish() == 0
    assert capsys.readouterr().out.splitlines() == [
        "PASS peak: 10 B (<= 12 B)",
        "sample: 1 of 1 requirements passed",
    ]
    content = json.loads((tmp_path / "sample.json").read_text())
    assert content["requirements"] == [
        {"requirement": "peak", "figure": "10 B", "bound": "<= 12 B", "passed": True}
    ]
    assert content["figures"] == {
        "ratio": {"ratio": 1.0, "low": 0.9, "high": 1.1, "pairs": 20},
        "peaks": [1, 2],
    }


def test_one_failed_requirement_exits_1(tmp_path, capsys):
    bench = make(tmp_path)
    bench.require("a", 1, 1, True)
    assert bench.require("b", 2, "<= 1", 2 <= 1) is False
    assert bench.finish() == 1
    assert "FAIL b: 2 (<= 1)" in capsys.readouterr().out


def test_what_a_requirement_is_about_stands_before_it(tmp_path, capsys):
    bench = make(tmp_path)
    bench.about("train_gpt")
    bench.require("peak", 1, "<= 1", True)
    bench.table(["budget"], [["1 GiB"]], "Peaks")
    bench.figure("peak", 1)
    bench.finish()
    lines = capsys.readouterr().out.splitlines()
    assert "PASS train_gpt: peak: 1 (<= 1)" in lines and "train_gpt: Peaks" in lines
    assert json.loads((tmp_path / "sample.json").read_text())["figures"] == {"train_gpt: peak": 1}


def test_a_bench_without_requirements_fails(tmp_path):
    assert make(tmp_path).finish() == 1


def test_a_numpy_verdict_becomes_plain_json(tmp_path):
    bench = make(tmp_path)
    bench.require("a", np.float64(1.5), "> 1", np.float64(1.5) > 1)
    bench.finish()
    assert json.loads((tmp_path / "sample.json").read_text())["requirements"][0]["passed"] is True


def test_quick_is_said_in_the_last_line_and_in_the_file(tmp_path, capsys):
    bench = make(tmp_path, quick=True)
    bench.require("a", 1, 1, True)
    bench.finish()
    assert capsys.readouterr().out.splitlines()[-1] == "sample (quick): 1 of 1 requirements passed"
    assert json.loads((tmp_path / "sample.json").read_text())["quick"] is True


def test_table_pads_columns_and_refuses_a_short_row():
    assert benchlib.format_table(["budget", "n"], [["1 GiB", 10], ["2", 7]]) == (
        "budget   n\n------  --\n1 GiB   10\n2        7"
    )
    with pytest.raises(ValueError, match="2 cells"):
        benchlib.format_table(["a", "b"], [["1"]])


def test_ratio_interval_cancels_what_slows_both_halves_of_a_pair():
    drift = np.linspace(100, 300, 40)
    interval = benchlib.ratio_interval(drift * 1.05, drift)
    assert interval.ratio == pytest.approx(1.05)
    assert interval.low == pytest.approx(1.05) and interval.high == pytest.approx(1.05)


def test_ratio_interval_covers_1_for_noise_and_not_for_a_real_difference():
    noise = np.random.default_rng(3)
    plain, again = noise.normal(100, 3, 60), noise.normal(100, 3, 60)
    same = benchlib.ratio_interval(again, plain)
    slower = benchlib.ratio_interval(again * 1.1, plain)
    assert same.low < 1 < same.high
    assert slower.low > 1.05
    assert same.half_width > 0


def test_ratio_interval_is_the_same_each_time():
    samples = np.random.default_rng(5).normal(10, 1, (2, 30))
    assert benchlib.ratio_interval(*samples) == benchlib.ratio_interval(*samples)


@pytest.mark.parametrize(
    "top, bottom", [([1], [1]), ([1, 2], [1, 2, 3]), ([1, 2], [0, 1]), ([1, float("nan")], [1, 1])]
)
def test_ratio_interval_refuses_series_that_have_no_ratio(top, bottom):
    with pytest.raises(ValueError):
        benchlib.ratio_interval(top, bottom)


def test_interleave_runs_each_arm_once_per_round_in_changing_order():
    log = []
    arms = {name: (lambda name=name: log.append(name) or len(log)) for name in "abc"}
    samples = benchlib.interleave(arms, pairs=8)
    rounds = [tuple(log[i : i + 3]) for i in range(0, 24, 3)]
    assert all(sorted(names) == ["a", "b", "c"] for names in rounds)
    assert len(set(rounds)) > 1
    assert sorted(sum(samples.values(), [])) == list(range(1, 25))


@pytest.mark.parametrize(
    "count, text",
    [
        (0, "0 B"),
        (17, "17 B"),
        (4096, "4.00 KiB"),
        (312 << 20, "312.0 MiB"),
        (3 << 29, "1.50 GiB"),
        (-2048, "-2.00 KiB"),
        ((1 << 30) - 1, "1.00 GiB"),
    ],
)
def test_format_bytes(count, text):
    assert benchlib.format_bytes(count) == text

"""What surrounds the random programs: the tally of a fuzz run, and planting faults into sources."""

import importlib.util
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tally_of_a_job_is_read():
    fuzz = load(ROOT / "scripts" / "fuzz_programs.py")
    line = (
        "TALLY programs=2 pairs=6 dropped=5 evicted=1 diverged=0 refused=0 refused_alike=1 wrong=0"
    )
    tally = fuzz.read_tally(line)
    assert set(tally) == {*fuzz.COUNTS, "wrong"}
    assert tally["dropped"] == 5


@pytest.mark.parametrize("source", ["replay.cc", "saved_holder.cc", "trace_builder.cc"])
def test_faults_fit_the_sources(source):
    plant = load(ROOT / "tests" / "mutants" / "plant.py")
    path = ROOT / "src" / "runtime" / source
    planted = plant.plant(path)
    assert planted.count("testing::planted(") >= len(plant.FAULTS[source])
    assert "testing::planted(" not in path.read_text(encoding="utf-8")


def test_a_changed_source_is_refused_by_the_missing_text(tmp_path):
    plant = load(ROOT / "tests" / "mutants" / "plant.py")
    changed = tmp_path / "replay.cc"
    text = (ROOT / "src" / "runtime" / "replay.cc").read_text(encoding="utf-8")
    changed.write_text(text.replace("record->rng->restore();", ""), encoding="utf-8")
    with pytest.raises(SystemExit, match="record->rng->restore"):
        plant.plant(changed)

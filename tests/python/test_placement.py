"""`lowtide place`, judged by scripts/check_placement.py, and the judge itself."""

import pathlib
import subprocess

import check_placement
import demolib
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The easiest of the shared ones, where there is a folder of them beside the repository.
SHARED = ROOT.parent / "shared" / "data" / "minimalloc" / "B.1048576.csv"
INSTANCES = [*sorted((ROOT / "tests" / "data" / "placement").glob("*.csv")), SHARED]


@pytest.mark.parametrize(
    "path", [path for path in INSTANCES if path.exists()], ids=lambda p: p.name
)
def test_packed_into_the_capacity(path, tmp_path):
    capacity = path.name.split(".")[1]
    solution = tmp_path / "solution.csv"
    command = [demolib.program("lowtide"), "place", path, "--capacity", capacity, "-o", solution]
    done = subprocess.run([*command, "--seconds", "60"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert check_placement.height_of(path, solution, int(capacity)) <= int(capacity)


@pytest.mark.parametrize(
    ("solution", "fault"),
    [
        ("a,0,2,4,0\nb,1,3,4,3\n", "overlap"),
        ("a,0,2,4,0\nb,1,3,4,8\n", "over the capacity"),
        ("a,0,2,4,-1\nb,1,3,4,4\n", "below 0"),
        ("a,0,2,4,0\n", "not the instance's"),
        ("a,0,2,4,0\nb,2,3,4,0\n", "not the instance's"),
    ],
)
def test_the_judge_finds_faults(solution, fault, tmp_path):
    (tmp_path / "i.csv").write_text("id,lower,upper,size\na,0,2,4\nb,1,3,4\n")
    (tmp_path / "s.csv").write_text("id,lower,upper,size,offset\n" + solution)
    with pytest.raises(ValueError, match=fault):
        check_placement.height_of(tmp_path / "i.csv", tmp_path / "s.csv", 10)


def test_the_judge_measures(tmp_path):
    (tmp_path / "i.csv").write_text("id,lower,upper,size\na,0,2,4\nb,1,3,4\nc,2,5,4\n")
    (tmp_path / "s.csv").write_text("id,lower,upper,size,offset\na,0,2,4,0\nb,1,3,4,5\nc,2,5,4,1\n")
    assert check_placement.height_of(tmp_path / "i.csv", tmp_path / "s.csv", 10) == 9

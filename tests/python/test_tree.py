"""Rules of the house that a machine can check on every file."""

import json
import pathlib
import re

import check_layers
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = [
    path
    for folder in ("src", "hooks", "planner", "profiler", "tests", "scripts")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in {".h", ".cc", ".py", ".cmake"} and path.is_file()
]


def names(paths):
    return [str(path.relative_to(ROOT)) for path in paths]


def test_no_file_is_longer_than_700_lines():
    assert SOURCES
    assert names(path for path in SOURCES if len(path.read_text().splitlines()) > 700) == []


def test_every_header_begins_with_its_contract():
    headers = [path for path in SOURCES if path.suffix == ".h"]
    assert names(path for path in headers if not path.read_text().startswith("//")) == []


def test_every_header_is_guarded_by_pragma_once():
    headers = [path for path in SOURCES if path.suffix == ".h"]
    assert names(path for path in headers if "\n#pragma once\n" not in path.read_text()) == []


def test_code_uses_checks_that_stay_on_and_not_assert():
    uses = re.compile(r"^[^/\n]*\bassert\(", re.MULTILINE)
    code = [path for path in SOURCES if path.suffix in {".h", ".cc"} and "tests" not in path.parts]
    assert names(path for path in code if uses.search(path.read_text())) == []


@pytest.mark.parametrize("preset", ["dev", "release", "asan", "tsan"])
def test_every_preset_configures_builds_and_tests(preset):
    presets = json.loads((ROOT / "CMakePresets.json").read_text())
    for kind in ("configurePresets", "buildPresets", "testPresets"):
        assert preset in [entry["name"] for entry in presets[kind]]


def test_commands_that_readers_are_told_to_type_exist():
    for text in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        told = set(re.findall(r"\bscripts/[a-z_-]+(?:\.py)?\b", text.read_text()))
        assert told
        assert [name for name in sorted(told) if not (ROOT / name).exists()] == []


def test_the_command_of_readme_is_in_its_first_screen():
    first_screen = (ROOT / "README.md").read_text().splitlines()[:40]
    assert any("scripts/demo" in line for line in first_screen)
    assert any(line.startswith("## Limits") for line in first_screen)


def test_rooms_of_the_layer_check_are_on_the_map():
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    assert [room for room in check_layers.MAY_INCLUDE if f"| `{room}` |" not in contributing] == []

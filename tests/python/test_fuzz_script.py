"""scripts/fuzz and its place in scripts/test: what it refuses, and how its judgements count."""

import importlib.machinery
import importlib.util
import pathlib
import subprocess
import types

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def load(name, path):
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


def fuzz(*arguments):
    return subprocess.run([ROOT / "scripts/fuzz", *arguments], capture_output=True, text=True)


def test_unknown_target_is_refused_with_the_known_ones():
    done = fuzz("nothing")
    assert done.returncode == 2
    assert "there is no 'nothing'" in done.stderr and "readers" in done.stderr


def test_help_names_the_targets():
    done = fuzz("--help")
    assert done.returncode == 0 and "readers" in done.stdout


@pytest.mark.parametrize(
    "output, code, expected",
    [
        ("PASS a\n  src/x.cc 3\nPASS b\n", 0, (2, 0)),
        ("PASS a\nFAIL b\nreaders: 1 failed\n", 1, (1, 1)),
        ("", 1, None),
        ("PASS a\n", 1, None),
    ],
)
def test_judgements_count_as_tests(monkeypatch, output, code, expected):
    script = load("lowtide_test", ROOT / "scripts/test")
    run = script.Run(types.SimpleNamespace(torch="2.15", jobs=1, quick=False))
    done = types.SimpleNamespace(stdout=output, returncode=code)
    monkeypatch.setattr(script.subprocess, "run", lambda *args, **more: done)
    if expected is None:
        with pytest.raises(RuntimeError):
            run.fuzz()
    else:
        counts = run.fuzz()
        assert (counts.passed, counts.failed) == expected

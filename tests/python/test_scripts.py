"""scripts/setup, scripts/test and scripts/bench: what they refuse, and how tests are counted."""

import importlib.machinery
import importlib.metadata
import importlib.util
import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def load_test_script():
    """scripts/test has no .py in its name, so it cannot be imported by name."""
    loader = importlib.machinery.SourceFileLoader("lowtide_test", str(ROOT / "scripts" / "test"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def run(script, *arguments, **environment):
    return subprocess.run(
        [ROOT / "scripts" / script, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def bare_path(tmp_path):
    """A PATH with the shell's own tools and Python, without compilers."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("bash", "env", "dirname", "basename", "cat", "id", "python3", "apt-get"):
        found = shutil.which(name)
        if found:
            (folder / name).symlink_to(found)
    return str(folder)


def test_setup_check_names_missing_packages_and_exits_2(bare_path):
    done = run("setup", "--check", PATH=bare_path)
    assert done.returncode == 2
    missing, fix = done.stderr.splitlines()
    assert missing.startswith("setup: missing: g++ cmake ninja-build")
    assert fix.startswith("setup: as root, run: apt-get install ")
    assert missing.removeprefix("setup: missing: ") in fix


def test_setup_without_root_installs_nothing_and_exits_2(bare_path, tmp_path):
    # `id` says who we are, apt-get must not be called.
    (tmp_path / "bin" / "id").unlink()
    (tmp_path / "bin" / "id").write_text("#!/bin/bash\necho 1000\n")
    (tmp_path / "bin" / "id").chmod(0o755)
    apt = tmp_path / "bin" / "apt-get"
    apt.unlink(missing_ok=True)
    apt.write_text(f"#!/bin/bash\necho called > {tmp_path}/called\n")
    apt.chmod(0o755)
    done = run("setup", PATH=bare_path)
    assert done.returncode == 2
    assert "as root, run: apt-get install" in done.stderr
    assert not (tmp_path / "called").exists()


def test_setup_check_with_everything_there_is_quick_and_exits_0():
    torch = importlib.metadata.version("torch").rsplit(".", 1)[0]
    done = run("setup", "--check", "--torch", torch)
    assert done.returncode == 0, done.stderr
    assert "are there" in done.stdout or "nothing to install" in done.stdout


@pytest.mark.parametrize("arguments", [("--torch", "2.9"), ("--torch=1",), ("--frob",)])
def test_setup_refuses_what_it_does_not_know(arguments):
    assert run("setup", *arguments).returncode == 2


def test_setup_names_what_a_given_environment_lacks(tmp_path):
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text('#!/bin/sh\nexec python3 -S -I "$@"\n')
    python.chmod(0o755)
    done = run("setup", LOWTIDE_VENV=str(tmp_path))
    assert done.returncode == 2
    assert "LOWTIDE_VENV has no torch" in done.stderr


def test_setup_refuses_an_environment_without_python(tmp_path):
    done = run("setup", LOWTIDE_VENV=str(tmp_path))
    assert done.returncode == 1
    assert "has no bin/python" in done.stderr


@pytest.mark.parametrize("name", ["nonesuch", "--frob", ""])
def test_bench_names_the_benches_it_has(name):
    done = run("bench", *([name] if name else []))
    assert done.returncode == 2
    assert "Names: " in done.stderr


def test_counts_of_ctest_and_pytest_files(tmp_path):
    script = load_test_script()
    ctest = tmp_path / "ctest.xml"
    ctest.write_text('<testsuite tests="10" failures="1" disabled="2" skipped="3"/>')
    pytest_file = tmp_path / "pytest.xml"
    pytest_file.write_text(
        '<testsuites><testsuite errors="1" failures="1" skipped="1" tests="9"/></testsuites>'
    )
    total = script.read_junit(ctest)
    total.add(script.read_junit(pytest_file))
    assert str(total) == "10 passed, 3 failed, 6 skipped"


class TestJudged:
    """A stage must not pass because its runner did nothing."""

    def judged(self, tmp_path, shell):
        script = load_test_script()
        run = script.Run.__new__(script.Run)
        return run.judged(["sh", "-c", shell], tmp_path / "results.xml")

    def test_no_results_file_is_an_error(self, tmp_path):
        (tmp_path / "results.xml").write_text('<testsuite tests="1"/>')  # of an earlier run
        with pytest.raises(RuntimeError, match="without results"):
            self.judged(tmp_path, "exit 0")

    def test_no_test_is_an_error(self, tmp_path):
        with pytest.raises(RuntimeError, match="no test ran"):
            self.judged(tmp_path, f"echo '<testsuite tests=\"0\"/>' > {tmp_path}/results.xml")

    def test_a_failing_runner_is_an_error_even_when_its_file_is_clean(self, tmp_path):
        with pytest.raises(RuntimeError, match="exited 3"):
            self.judged(
                tmp_path, f"echo '<testsuite tests=\"1\"/>' > {tmp_path}/results.xml; exit 3"
            )

    def test_a_clean_run_is_counted(self, tmp_path):
        counts = self.judged(tmp_path, f"echo '<testsuite tests=\"4\"/>' > {tmp_path}/results.xml")
        assert (counts.passed, counts.failed, counts.skipped) == (4, 0, 0)

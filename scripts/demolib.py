"""Runs the demo programs for benches and tests: whole runs, and runs that take one step at a time.

They are build/release/bin/train_* (what scripts/bench builds), or those of the folder named by
LOWTIDE_BUILD; train_gpt unless another is named. Every figure comes from a --json file; sizes are
bytes and times ns.
"""

import json
import os
import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = ("train_gpt", "train_resnet", "train_lstm")
NO_LIMIT = 1 << 40  # as --limit: the plain program on the product's allocator, without a limit

# What makes two runs the same: losses and gradients of each step, and what training leaves behind.
END_STATE = ("parameters", "gradients", "buffers", "optimizer", "random")


def build_folder():
    return pathlib.Path(os.environ.get("LOWTIDE_BUILD") or ROOT / "build" / "release")


def program(name="train_gpt"):
    places = [build_folder() / folder / name for folder in ("bin", "src/cli")]
    for path in places:
        if path.exists():
            return path
    raise FileNotFoundError(f"{places[0]} is missing; build the target {name} first")


class RunFailed(RuntimeError):
    """A program ended with an exit code that the caller did not expect."""


class Result:
    """What one run wrote down."""

    def __init__(self, code, content, output, errors):
        self.code, self.content, self.output, self.errors = code, content, output, errors

    def __getitem__(self, key):
        return self.content[key]

    def get(self, key, default=None):
        return self.content.get(key, default)

    @property
    def steps(self):
        return self.content["steps"]

    def in_phase(self, phase):
        return [step for step in self.steps if step.get("session", {}).get("phase") == phase]

    def peak(self, key="peak_reserved_bytes", phase=None):
        steps = self.steps if phase is None else self.in_phase(phase)
        return max((step[key] for step in steps), default=-1)

    def session_peak(self, key="peak_reserved_bytes", phase=None):
        steps = self.steps if phase is None else self.in_phase(phase)
        return max((step["session"][key] for step in steps), default=-1)


def train(
    *arguments,
    name="train_gpt",
    expect=(0,),
    timeout=1200,
    executable=None,
    environment=None,
):
    """One whole run. Raises RunFailed when the exit code is not one of `expect`."""
    with tempfile.TemporaryDirectory(prefix="lowtide-run-") as folder:
        path = pathlib.Path(folder) / "run.json"
        command = [str(executable or program(name)), *map(str, arguments), "--json", str(path)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, env=environment
        )
        content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"steps": []}
    if done.returncode not in expect:
        raise RunFailed(
            f"{' '.join(command)} exited {done.returncode}: {done.stderr.strip()[-2000:]}"
        )
    return Result(done.returncode, content, done.stdout, done.stderr)


def differences(run, reference):
    """Names of what is not bit-identical between two runs; empty = the same training."""
    found = [key for key in END_STATE if run[key] != reference[key]]
    if len(run.steps) != len(reference.steps):
        return [*found, f"steps ({len(run.steps)} and {len(reference.steps)})"]
    for mine, theirs in zip(run.steps, reference.steps):
        for key in ("loss", "gradients", "eval_loss"):
            if mine.get(key) != theirs.get(key):
                return [*found, f"{key} of step {mine['step']}"]
    return found


class PacedRun:
    """A run that takes a step when asked to, so that several can be interleaved."""

    def __init__(self, *arguments, name="train_gpt", executable=None, under=()):
        """`under`: a command that runs the program, as valgrind does."""
        command = [
            *map(str, under),
            str(executable or program(name)),
            *map(str, arguments),
            "--paced",
            "--steps",
            str(1 << 20),
        ]
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            bufsize=1,
        )

    def step(self):
        """The figures of the next step."""
        try:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        self._process.wait()
        self._errors.seek(0)
        raise RunFailed(f"exited {self._process.returncode}: {self._errors.read().strip()[-2000:]}")

    @property
    def pid(self):
        return self._process.pid

    def close(self):
        """Ends the run; what it wrote to stderr."""
        self._process.stdin.close()
        self._process.stdout.read()
        self._process.wait()
        self._errors.seek(0)
        errors = self._errors.read()
        self._errors.close()
        return errors

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

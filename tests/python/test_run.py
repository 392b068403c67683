"""`lowtide run` as a user meets it: LibTorch programs that know nothing of Lowtide, judged by their
own counters (requested bytes of all tensors, memory that Lowtide's libraries map)."""

import os
import re
import signal
import statistics
import subprocess
import time

import demolib
import pytest

STEPS = 16


class Run:
    """One run of plain_train: exit code, lines by their first word, stderr."""

    def __init__(self, done):
        self.code, self.screen = done.returncode, done.stderr
        self.lines = done.stdout.splitlines()

    def all(self, word):
        return [line for line in self.lines if line.startswith(word + " ")]

    def peak(self, counter):
        (line,) = [line for line in self.lines if line.startswith(f"peak {counter} ")]
        return int(line.split()[-1])

    @property
    def training(self):
        """What must be bit-identical: losses, end state and random stream, in order."""
        kinds = ("loss ", "state ", "random ", "worker ")
        return [line for line in self.lines if line.startswith(kinds)]


def call(*command, stdin=None, **environment):
    clean = {key: value for key, value in os.environ.items() if not key.startswith("LOWTIDE_")}
    clean.update({"OMP_NUM_THREADS": "1", **environment})
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=600,
        env=clean,
        input=stdin,
    )


def plain(*arguments, **options):
    return Run(call(demolib.program("plain_train"), *arguments, **options))


def lowtide(*options, program="plain_train", arguments=(), folder, **rest):
    path = demolib.program(program)
    command = [demolib.program("lowtide"), "run", "--directory", folder, *options, "--", path]
    return Run(call(*command, *arguments, **rest))


@pytest.fixture(scope="module")
def plain_runs():
    """Plain runs by their arguments: each is made once."""
    known = {}

    def get(*arguments):
        if arguments not in known:
            known[arguments] = plain(*arguments)
            assert known[arguments].code == 0, known[arguments].screen
        return known[arguments]

    return get


def within_half(plain_runs, folder, *arguments, share=0.5, options=(), **rest):
    """Runs under a share of the plain peak; checks bits and the budget by both counters."""
    reference = plain_runs(*arguments)
    budget = int(reference.peak("requested") * share)
    done = lowtide("--budget", budget, *options, arguments=arguments, folder=folder, **rest)
    assert done.code == 0, done.screen
    assert done.training == reference.training
    assert done.peak("requested") <= budget, done.screen
    assert 0 < done.peak("mapped") <= budget, done.screen
    return done


def dropped(run):
    found = re.search(r"dropped +(\d+) storages", run.screen)
    return int(found[1]) if found else 0


def test_untouched_program_trains_within_half_of_its_peak(plain_runs, tmp_path):
    run = within_half(plain_runs, tmp_path, "gpt", STEPS)
    assert "phase enforce" in run.screen and "over budget in 0 steps" in run.screen
    assert dropped(run) > 0
    assert "within the budget" in run.screen
    assert len(list(tmp_path.glob("plain_train-*.trace.json"))) == 1
    assert len(list(tmp_path.glob("plain_train-*.plan.json"))) == 1

    again = within_half(plain_runs, tmp_path, "gpt", STEPS, options=["--verbose"])
    assert "found trace" in again.screen
    assert "another program" not in again.screen
    assert len(list(tmp_path.glob("*.trace.json"))) == 1, "the stored trace was not used"


@pytest.mark.parametrize("kind", ["accumulate", "penalty", "evaluate", "data"])
def test_kinds_of_steps(plain_runs, tmp_path, kind):
    run = within_half(plain_runs, tmp_path, kind, STEPS, share=0.6)
    steps = int(re.search(r"(\d+) steps, phase", run.screen)[1])
    assert steps == STEPS, run.screen
    assert dropped(run) > 0, run.screen


def test_two_optimizers_in_turn_are_two_kinds_of_steps(plain_runs, tmp_path):
    run = within_half(plain_runs, tmp_path, "gan", 20, share=0.6)
    assert "40 steps, phase enforce" in run.screen


@pytest.mark.parametrize("how", ["thread", "turns"])
def test_training_in_other_threads(plain_runs, tmp_path, how):
    run = within_half(plain_runs, tmp_path, "gpt", STEPS, how)
    assert "phase enforce" in run.screen


def test_the_other_front_end(plain_runs, tmp_path):
    within_half(plain_runs, tmp_path, "gpt", STEPS, LOWTIDE_FRONT_END="record_function")


def test_second_concurrent_thread_runs_plain_and_is_told(tmp_path):
    run = lowtide("--budget", "200MiB", arguments=("gpt", STEPS, "threads"), folder=tmp_path)
    assert run.code == 0, run.screen
    assert run.screen.count("a second thread trains") == 1


def test_program_that_never_writes_its_parameters(plain_runs, tmp_path):
    reference = plain_runs("replace", 90)
    run = lowtide("--budget", "200MiB", arguments=("replace", 90), folder=tmp_path)
    assert (run.code, run.training) == (0, reference.training)
    # The first 64 engine runs could have been one step; from there on each is one.
    assert int(re.search(r"(\d+) steps", run.screen)[1]) == 27


def test_workers_run_plain_and_children_run_clean(plain_runs, tmp_path):
    run = within_half(plain_runs, tmp_path, "gpt", STEPS, "fork")
    assert run.all("worker").count("worker exit 0") == STEPS
    assert "child preload ''" in run.lines
    assert run.screen.count("lowtide plain_train:") == 1, "a worker printed a closing screen"


def test_other_preloaded_libraries_stay(tmp_path):
    other = demolib.build_folder() / "lib" / "liblowtide_core.so"
    arguments = ("gpt", 1, "fork")
    run = lowtide("--budget", "1GiB", arguments=arguments, folder=tmp_path, LD_PRELOAD=str(other))
    assert f"child preload '{other}'" in run.lines


@pytest.mark.parametrize(
    "how, code", [("throw", -signal.SIGABRT), ("kill", -signal.SIGTERM), ("exit", 7), ("quick", 9)]
)
def test_exits_are_the_programs_own(tmp_path, how, code):
    reference = plain("gpt", 3, how)
    run = lowtide("--budget", "1GiB", arguments=("gpt", 3, how), folder=tmp_path)
    assert (reference.code, run.code) == (code, code)
    assert run.training == reference.training
    if how == "throw":
        assert "the program's own trouble" in run.screen


def test_stdin_reaches_the_program(tmp_path):
    run = lowtide("--budget", "1GiB", arguments=("gpt", "-"), folder=tmp_path, stdin="2\n")
    assert len(run.all("loss")) == 2


def test_disabled_is_a_pass_through(tmp_path):
    run = lowtide("--budget", "1MiB", arguments=("gpt", 2), folder=tmp_path, LOWTIDE_DISABLE="1")
    assert (run.code, run.screen, run.peak("mapped")) == (0, "", 0)


def test_infeasible_budget_is_a_message_and_exit_3(plain_runs, tmp_path):
    reference = plain_runs("gpt", STEPS)
    stopped = lowtide("--budget", "5MiB", arguments=("gpt", STEPS), folder=tmp_path)
    assert stopped.code == 3
    assert stopped.training == reference.training[: len(stopped.training)]
    smallest = int(re.search(r"smallest reachable budget is (\d+)", stopped.screen)[1])
    # Known now: the next run is told before its first step.
    again = lowtide("--budget", "5MiB", arguments=("gpt", STEPS), folder=tmp_path)
    assert again.code == 3
    assert f"smallest reachable budget is {smallest}" in again.screen
    assert again.training == []
    # And the named budget does work.
    enough = lowtide("--budget", smallest, arguments=("gpt", STEPS), folder=tmp_path)
    assert enough.code == 0, enough.screen
    assert enough.training == reference.training


def test_infeasible_budget_continues_when_told_to(plain_runs, tmp_path):
    options = ("--budget", "5MiB", "--on-infeasible=continue")
    run = lowtide(*options, arguments=("gpt", STEPS), folder=tmp_path)
    assert run.code == 0, run.screen
    assert run.training == plain_runs("gpt", STEPS).training
    assert "going on as low as is reachable" in run.screen
    assert "over the budget" in run.screen


def test_plan_by_hand(plain_runs, tmp_path):
    within_half(plain_runs, tmp_path, "gpt", STEPS)
    (plan,) = tmp_path.glob("*.plan.json")
    run = within_half(plain_runs, tmp_path / "other", "gpt", 4, options=["--plan", plan], share=0.5)
    assert "phase enforce" in run.screen
    wrong = lowtide("--plan", plan, arguments=("penalty", 3), folder=tmp_path)
    assert wrong.code == 2
    assert "the plan belongs to another program" in wrong.screen


def test_another_torch_is_named_and_the_program_runs_plain(tmp_path):
    run = lowtide("--budget", "1GiB", program="another_torch_program", folder=tmp_path)
    assert (run.code, run.lines) == (5, ["torch 2.12"])
    (line,) = run.screen.splitlines()
    assert "uses torch 2.12" in line and "runs plain" in line


def test_program_without_torch_is_left_alone(tmp_path):
    run = lowtide("--budget", "1GiB", program="no_torch", folder=tmp_path)
    assert (run.code, run.lines, run.screen) == (4, ["no torch here"], "")


def test_torch_that_comes_later_is_left_alone(tmp_path):
    double = demolib.build_folder() / "doubles" / "libtorch_cpu.so"
    run = lowtide("--budget", "1GiB", program="no_torch", arguments=[double], folder=tmp_path)
    assert (run.code, run.lines) == (4, ["no torch here", "loaded: yes"])
    assert "ran plain" in run.screen


def test_launchers_hand_it_on(plain_runs, tmp_path):
    reference = plain_runs("gpt", STEPS)
    budget = reference.peak("requested")
    train = demolib.program("plain_train")
    script = f"echo started; {train} gpt {STEPS}"
    command = [demolib.program("lowtide"), "run", "--budget", budget, "--directory", tmp_path]
    run = Run(call(*command, "--", "sh", "-c", script))
    assert run.code == 0
    assert run.training == reference.training
    assert run.peak("mapped") > 0


def test_without_torch_it_costs_less_than_5_ms():
    program = demolib.program("no_torch")
    preload = demolib.build_folder() / "lib" / "liblowtide_preload.so"
    seconds = {"": [], str(preload): []}
    for _ in range(60):
        for library, times in seconds.items():
            environment = {"LD_PRELOAD": library} if library else {}
            begin = time.perf_counter()
            subprocess.run([program], stdout=subprocess.DEVNULL, env=environment)
            times.append(time.perf_counter() - begin)
    without, with_it = (sorted(times)[:20] for times in seconds.values())
    assert statistics.median(with_it) - statistics.median(without) <= 0.005


@pytest.mark.parametrize(
    "arguments, code, part",
    [
        (("run",), 2, "no program to run"),
        (("run", "--budget", "1GiB", "train"), 2, "train"),
        (("run", "--budget", "much", "--", "true"), 2, "--budget 'much'"),
        (("run", "--budget", "0", "--", "true"), 2, "--budget 0"),
        (("run", "--plan", "nowhere.plan.json", "--", "true"), 2, "nowhere.plan.json"),
        (("run", "--on-infeasible", "pray", "--", "true"), 2, "pray"),
        (("run", "--", "./nowhere"), 127, "./nowhere"),
        (("run", "--", "/"), 126, "cannot run '/'"),
    ],
)
def test_wrong_use_is_one_line(arguments, code, part):
    done = call(demolib.program("lowtide"), *arguments)
    assert done.returncode == code
    (line,) = done.stderr.splitlines()
    assert part in line

"""Sessions on CUDA, over the double: a LibTorch program trains under a budget on torch's CUDA code.

The double's count of device memory is the judge: its largest value over the whole process may not
cross the budget. Values mean nothing there, so nothing is said about bits.
"""

import functools
import re
import subprocess

import cuda_double
import demolib
import pytest

# Large beside the native allocator's segments of 20 MiB: the double's kernels touch no memory.
MODEL = ("--width", 512, "--layers", 4, "--heads", 8, "--context", 256, "--batch", 16)
STEPS = 16
# (Rounded bytes differ: the native allocator leaves small rests with the block.)
FIGURES = ("peak_requested_bytes", "peak_reserved_bytes")


class Run:
    """One run of train_gpt over the double, and what the double says of it."""

    def __init__(self, *arguments, expect=(0,), front_end="dispatch_key"):
        environment = cuda_double.environment(REPORT=1, QUIET=1)
        self.result = demolib.train(
            *("--device", "cuda", *MODEL, "--steps", STEPS, *arguments),
            executable=cuda_double.BUILD / "bin" / "train_gpt",
            environment={**environment, "LOWTIDE_FRONT_END": front_end},
            expect=expect,
        )
        self.errors = self.result.errors
        self.peak = int(re.search(r"device 0: .* (\d+) at most", self.errors)[1])
        self.misuse = re.search(r"misuse:(.*)", self.errors)[1].strip()


@functools.cache
def plain():
    return Run("--no-lowtide")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cuda")


@pytest.fixture(scope="module")
def probed(folder):
    """Without a budget; leaves a trace."""
    return Run("--budget", "none", "--directory", folder)


def test_watching_changes_no_request(probed):
    assert probed.misuse == plain().misuse == "none"
    watched = probed.result.in_phase("warm-up")
    assert len(watched) == 2
    for mine, theirs in zip(watched, plain().result.steps):
        assert [mine[key] for key in FIGURES] == [theirs[key] for key in FIGURES]


def test_the_sessions_peaks_are_torchs(probed):
    for step in probed.result.steps:
        assert [step["session"][key] for key in FIGURES] == [step[key] for key in FIGURES]


def test_the_random_stream_is_the_plain_programs(probed):
    """Offsets of the device's generator are host state: those the double has for real."""
    assert probed.result["random"] == plain().result["random"]


@pytest.mark.parametrize(
    ("percent", "front_end"),
    [
        *((percent, "dispatch_key") for percent in (95, 85, 75, 65, 55, 45)),
        (65, "record_function"),
    ],
)
def test_the_budget_holds_from_the_first_step(percent, front_end, tmp_path):
    budget = plain().peak * percent // 100
    run = Run("--budget", budget, "--directory", tmp_path, front_end=front_end)
    assert run.misuse == "none"
    assert run.peak <= budget
    session = run.result["session"]
    assert session["phase"] == "enforce"
    assert session["steps_over_budget"] == 0
    assert run.result["plan"]["decisions"] > 0
    assert session["replayed_ops"] > 0
    assert run.result["random"] == plain().result["random"]
    assert "values not verified (double)" in run.errors
    assert "values not verified (double)" in run.result.output


def test_a_stored_trace_gives_a_plan_from_the_first_step(probed, folder):
    budget = plain().peak * 70 // 100
    run = Run("--budget", budget, "--directory", folder)
    assert run.peak <= budget
    assert [step["session"]["phase"] for step in run.result.steps[:1]] == ["verify"]


def test_what_cannot_be_met_is_refused(tmp_path):
    """Below what even eviction reaches: torch's error with our account, and a clean end."""
    run = Run("--budget", plain().peak * 20 // 100, "--directory", tmp_path, expect=(3,))
    assert "CUDA out of memory" in run.errors
    assert "Lowtide: budget" in run.errors
    assert "nothing is left to evict" in run.errors
    assert run.misuse == "none"


@functools.cache
def cases():
    done = subprocess.run(
        [cuda_double.BUILD / "bin" / "cuda_session"],
        env=cuda_double.environment(DEVICES=2, REPORT=1),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "misuse: none" in done.stderr, done.stderr[-2000:]
    return cuda_double.Cases(done)


def test_backward_runs_inside_and_outside_of_sessions_on_the_devices_threads():
    assert cases()("plain_around")["fine"]


def test_what_an_op_draws_without_declaring_it_is_drawn_again():
    case = cases()("undeclared_draws")
    assert case["drawn"] == case["expected"]
    assert case["strange"] == 0
    assert case["replayed"] > 0
    assert case["most_seen"] > case["layers"]  # so some were drawn again


def test_recomputation_waits_for_the_streams_of_what_it_reads():
    case = cases()("streams")
    assert case["replayed"] > 0
    assert case["waits"] >= case["plain_waits"] + case["replayed"]


def test_tensors_of_other_devices_are_left_alone():
    case = cases()("other_devices")
    assert case["phase"] == "enforce"
    assert case["dropped"] > 0
    assert case["elsewhere"] == 0
    assert case["over_budget"] == 0


def test_a_step_inside_a_graph_capture_runs_plain():
    assert (cases()("captured_step")["counted"], cases()("captured_step")["after"]) == (0, 1)


def test_the_session_puts_torchs_allocator_back():
    assert cases()("comes_and_goes") == {"decorated": True, "put_back": True}


def test_an_automatic_budget_is_the_whole_device():
    """Less the reserve; beside torch's memory the double's device holds nothing."""
    assert cases()("automatic_budget")["bytes"] == (16 << 30) - (1 << 20)


def test_autocast():
    assert cases()("autocast")["phase"] == "enforce"
    assert cases()("autocast")["replayed"] > 0


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("cuda:9", "there is no CUDA device 9 here: torch sees 2"),
        ("xpu", "Fix: cpu, cuda or cuda:1"),
        ("moon", "Fix: cpu, cuda or cuda:1"),
    ],
)
def test_a_device_that_is_none(device, said):
    assert said in cases()("refusals")[device]

"""The demo program as a user meets it: figures, errors, exit codes, checkpoints, bit-identity."""

import pathlib
import subprocess

import demolib
import pytest

SMALL = ("--width", 32, "--layers", 2, "--heads", 2, "--context", 32, "--batch", 4)


def fails(*arguments):
    """Exit code and the one error line of a run that should not start."""
    done = subprocess.run(
        [str(demolib.program()), *map(str, arguments)], capture_output=True, text=True, timeout=300
    )
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    return done.returncode, lines[0]


def plain(*arguments, **keywords):
    return demolib.train("--no-lowtide", *SMALL, *arguments, **keywords)


def test_plain_training_is_a_function_of_the_seed():
    first = plain("--steps", 4, "--grad-digest")
    again = plain("--steps", 4, "--grad-digest")
    other = plain("--steps", 4, "--grad-digest", "--seed", 2)
    assert demolib.differences(first, again) == []
    assert "parameters" in demolib.differences(first, other)


def test_paced_run_takes_the_steps_of_a_whole_one():
    whole = plain("--steps", 3)
    with demolib.PacedRun("--no-lowtide", *SMALL) as run:
        assert [run.step()["loss"] for _ in range(3)] == [step["loss"] for step in whole.steps]


def test_loss_falls():
    losses = [float.fromhex(step["loss"]) for step in plain("--steps", 40, "--lr", 3e-3).steps]
    assert losses[-1] < 0.8 * losses[0]


def test_resumed_plain_run_equals_the_whole_one(tmp_path):
    checkpoint = tmp_path / "state.pt"
    whole = plain("--steps", 7, "--grad-digest")
    first = plain("--steps", 7, "--stop-at", 4, "--checkpoint", checkpoint, "--grad-digest")
    rest = plain("--steps", 7, "--resume", checkpoint, "--grad-digest")
    assert [step["step"] for step in rest.steps] == [5, 6, 7]
    keys = ("loss", "gradients")
    assert [[step[key] for key in keys] for step in first.steps + rest.steps] == [
        [step[key] for key in keys] for step in whole.steps
    ]
    assert [rest[key] for key in demolib.END_STATE] == [whole[key] for key in demolib.END_STATE]
    assert list(tmp_path.iterdir()) == [checkpoint]  # no half-written file left


def test_recompute_by_hand_is_bit_identical_and_needs_less_memory():
    arguments = ("--steps", 4, "--layers", 4, "--batch", 8, "--grad-digest")
    kept = plain(*arguments)
    recomputed = plain(*arguments, "--recompute", "blocks")
    assert demolib.differences(recomputed, kept) == []
    assert recomputed.peak("peak_requested_bytes") < 0.7 * kept.peak("peak_requested_bytes")


def test_lengths_vary_and_the_last_batch_is_short():
    run = plain("--steps", 8, "--lengths", "16:48", "--eval-every", 4)
    lengths = [step["length"] for step in run.steps]
    assert len(set(lengths)) > 3 and min(lengths) >= 16 and max(lengths) <= 48
    assert [step["rows"] for step in run.steps] == [4] * 7 + [1]
    assert [step["step"] for step in run.steps if "eval_loss" in step] == [4, 8]


def test_evaluation_leaves_training_as_it_was():
    without = plain("--steps", 6)
    with_evaluation = plain("--steps", 6, "--eval-every", 2)
    assert [without[key] for key in demolib.END_STATE] == [
        with_evaluation[key] for key in demolib.END_STATE
    ]


def test_any_utf8_text_can_be_learnt(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("Ebbe, 潮, Flut, прилив, 🌊. " * 60, encoding="utf-8")
    assert len(plain("--steps", 2, "--text", text).steps) == 2


@pytest.mark.parametrize(
    "content, offset",
    [
        (b"\xff" + b"a" * 2000, 0),
        (b"ab\xc0\x80" + b"a" * 2000, 2),
        (b"a\xed\xa0\x80" + b"a" * 2000, 1),
        (b"a" * 2000 + b"\xe2\x82", 2000),
    ],
)
def test_text_that_is_not_utf8_is_refused_with_the_place(tmp_path, content, offset):
    text = tmp_path / "text.txt"
    text.write_bytes(content)
    code, line = fails("--no-lowtide", *SMALL, "--text", text)
    assert code == 2
    assert f"is not UTF-8 at byte {offset};" in line


@pytest.mark.parametrize(
    "arguments, part",
    [
        (("--text", "nowhere.txt"), "cannot read 'nowhere.txt'"),
        (("--heads", 3), "--heads 3"),
        (("--lengths", "5"), "has no ':'"),
        (("--lengths", "9:3"), "above the longest"),
        (("--lengths", "a:3"), "'a' is not a sequence length"),
        (("--steps", 0), "--steps"),
        (("--steps", 3, "--stop-at", 4), "--stop-at 4"),
        (("--context", 30000), "give a longer text or a smaller --context"),
        (("--recompute", "some"), "--recompute"),
        (("--wat",), "--wat"),
        (("--limit", "lots"), "--limit"),
        (("--resume", "nowhere.pt"), "--resume: 'nowhere.pt' is not a file"),
        (("--plan", "some.json"), "--plan has no meaning with --no-lowtide"),
    ],
)
def test_bad_input_is_named_with_the_fix(arguments, part):
    code, line = fails("--no-lowtide", *SMALL, *arguments)
    assert code == 2
    assert part in line


def test_checkpoint_of_another_model_and_a_damaged_one_are_refused(tmp_path):
    checkpoint = tmp_path / "state.pt"
    plain("--steps", 1, "--checkpoint", checkpoint)
    code, line = fails("--no-lowtide", *SMALL, "--layers", 3, "--resume", checkpoint)
    assert code == 2 and "layers=2" in line and "layers=3" in line
    content = checkpoint.read_bytes()
    checkpoint.write_bytes(content[: len(content) // 2])
    code, line = fails("--no-lowtide", *SMALL, "--resume", checkpoint)
    assert code == 2 and "is damaged" in line


def test_plain_program_fails_under_a_limit_that_lowtide_would_keep():
    peak = plain("--steps", 2, "--limit", demolib.NO_LIMIT).peak("peak_requested_bytes")
    run = plain("--steps", 2, "--limit", peak // 2, expect=(3,))
    assert run["exit_code"] == 3 and run["error"]


@pytest.fixture(scope="module")
def reference():
    return plain(*TestUnderLowtide.ARGUMENTS, "--limit", demolib.NO_LIMIT)


class TestUnderLowtide:
    """The same program with a session; budgets are shares of the plain reserved peak."""

    # Large enough that activations, not parameters and small blocks, fill the budget.
    MODEL = ("--width", 64, "--layers", 4, "--heads", 4, "--context", 64, "--batch", 8)
    ARGUMENTS = (*MODEL, "--steps", 14, "--grad-digest")

    @staticmethod
    def budgeted(share, reference, folder, *arguments, **keywords):
        budget = int(reference.peak() * share)
        return budget, demolib.train(
            *SMALL, "--budget", budget, "--directory", folder, *arguments, **keywords
        )

    def test_bit_identical_and_within_the_budget_from_step_1(self, reference, tmp_path):
        budget, run = self.budgeted(0.5, reference, tmp_path, *self.ARGUMENTS)
        assert demolib.differences(run, reference) == []
        assert run.peak() <= budget
        assert run["session"]["steps_over_budget"] == 0
        assert run["plan"]["decisions"] > 0  # else the budget asks for nothing
        assert run.in_phase("enforce")

    def test_resumed_run_needs_no_probe_and_equals_the_whole_one(self, reference, tmp_path):
        checkpoint = tmp_path / "state.pt"
        folder = tmp_path / "lowtide"
        _, first = self.budgeted(
            0.7, reference, folder, *self.ARGUMENTS, "--stop-at", 9, "--checkpoint", checkpoint
        )
        _, rest = self.budgeted(0.5, reference, folder, *self.ARGUMENTS, "--resume", checkpoint)
        assert rest.in_phase("probe") == []
        assert [step["loss"] for step in first.steps + rest.steps] == [
            step["loss"] for step in reference.steps
        ]
        assert [rest[key] for key in demolib.END_STATE] == [
            reference[key] for key in demolib.END_STATE
        ]

    def test_impossible_budget_exits_3_and_names_the_smallest(self, reference, tmp_path):
        self.budgeted(0.5, reference, tmp_path, *self.ARGUMENTS)
        _, run = self.budgeted(0.01, reference, tmp_path, *self.ARGUMENTS, expect=(3,))
        smallest = run["smallest_reachable_bytes"]
        assert 0 < smallest < reference.peak()
        again = demolib.train(
            *SMALL, "--budget", smallest, "--directory", tmp_path, *self.ARGUMENTS
        )
        assert again.peak() <= smallest
        assert demolib.differences(again, reference) == []

    @pytest.mark.parametrize("budget", ["lots", "-1", ""])
    def test_bad_budget_is_named(self, budget, tmp_path):
        code, line = fails(*SMALL, "--budget", budget, "--directory", tmp_path)
        assert code == 2 and "budget" in line

    def test_plan_of_another_model_is_refused(self, reference, tmp_path):
        self.budgeted(0.5, reference, tmp_path, *self.ARGUMENTS)
        plans = list(pathlib.Path(tmp_path).glob("*.plan.json"))
        assert len(plans) == 1
        code, line = fails(*self.MODEL, "--layers", 3, "--plan", plans[0], "--directory", tmp_path)
        assert code == 2 and line

    def test_disabled_session_is_plain(self, reference, tmp_path, monkeypatch):
        monkeypatch.setenv("LOWTIDE_DISABLE", "1")
        _, run = self.budgeted(0.5, reference, tmp_path, *self.ARGUMENTS)
        assert demolib.differences(run, reference) == []
        assert list(tmp_path.iterdir()) == []

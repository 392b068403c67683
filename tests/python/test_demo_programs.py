"""train_resnet and train_lstm as a user meets them; what all share is in test_train_gpt."""

import subprocess

import demolib
import pytest

SMALL = {
    "train_resnet": ("--width", 8, "--layers", 1, "--batch", 16),
    "train_lstm": ("--width", 32, "--layers", 2, "--context", 24, "--batch", 8),
}
FUSED = ("--fused",)
VARIANTS = [("train_resnet", ()), ("train_lstm", ()), ("train_lstm", FUSED)]
variants = pytest.mark.parametrize("name, more", VARIANTS, ids=["resnet", "lstm", "fused lstm"])
programs = pytest.mark.parametrize("name", SMALL)


def plain(name, *arguments, **keywords):
    return demolib.train("--no-lowtide", *SMALL[name], *arguments, name=name, **keywords)


def losses(run):
    return [step["loss"] for step in run.steps]


@variants
def test_plain_training_is_a_function_of_the_seed(name, more):
    first, again, other = (
        plain(name, "--steps", 3, "--grad-digest", *more, "--seed", seed) for seed in (1, 1, 2)
    )
    assert demolib.differences(first, again) == []
    assert "parameters" in demolib.differences(first, other)


@pytest.mark.parametrize(
    "name, arguments, share",
    [
        ("train_resnet", ("--steps", 60, "--batch", 32), 0.75),
        ("train_lstm", ("--steps", 40, "--lr", 1e-2), 0.8),
    ],
)
def test_loss_falls(name, arguments, share):
    first, *_, last = map(float.fromhex, losses(plain(name, *arguments)))
    assert last < share * first


@variants
def test_resumed_plain_run_equals_the_whole_one(name, more, tmp_path):
    checkpoint = tmp_path / "state.pt"
    whole = plain(name, "--steps", 5, *more)
    first = plain(name, "--steps", 5, "--stop-at", 3, "--checkpoint", checkpoint, *more)
    rest = plain(name, "--steps", 5, "--resume", checkpoint, *more)
    assert losses(first) + losses(rest) == losses(whole)
    assert [rest[key] for key in demolib.END_STATE] == [whole[key] for key in demolib.END_STATE]


@pytest.mark.parametrize(
    "name, more, share",
    [
        ("train_resnet", ("--layers", 3), 0.8),
        ("train_lstm", ("--width", 64, "--context", 48), 0.8),
    ],
)
def test_recompute_by_hand_is_bit_identical_and_needs_less_memory(name, more, share):
    arguments = ("--steps", 4, "--grad-digest", "--dropout", 0.2, *more)
    kept = plain(name, *arguments)
    recomputed = plain(name, *arguments, "--recompute", "blocks")
    # Buffers too: running statistics move once although the blocks ran twice.
    assert demolib.differences(recomputed, kept) == []
    assert recomputed.peak("peak_requested_bytes") < share * kept.peak("peak_requested_bytes")


@programs
def test_evaluation_leaves_training_as_it_was(name):
    without = plain(name, "--steps", 4)
    evaluated = plain(name, "--steps", 4, "--eval-every", 2)
    assert [step["step"] for step in evaluated.steps if "eval_loss" in step] == [2, 4]
    assert [without[key] for key in demolib.END_STATE] == [
        evaluated[key] for key in demolib.END_STATE
    ]


@programs
def test_checkpoint_of_another_program_is_refused(name, tmp_path):
    checkpoint = tmp_path / "state.pt"
    demolib.train("--no-lowtide", "--steps", 1, "--layers", 1, "--checkpoint", checkpoint)
    run = plain(name, "--resume", checkpoint, expect=(2,))
    assert "was trained with train_gpt: " in run["error"] and f"has {name}: " in run["error"]


@pytest.mark.parametrize(
    "content, part",
    [
        ("1,2,3,4,0\n1,2,3,4\n", "line 2: not a square image"),
        ("1,2,3,4,0\n1,2,3,4,5,6,7,8,9,0\n", "line 2: not the size of the images before"),
        ("1,2,3,256,0\n", "line 1: not a number of 0 to 255"),
        ("1,2,,4,0\n", "line 1: not a number of 0 to 255"),
        ("1;2;3;4;0\n", "line 1: no comma after a number"),
        ("\n", "line 1: not a number of 0 to 255"),
        ("1,2,3,4,0\n" * 19, "has 19 images, 20 are needed"),
        ("", "has 0 images, 20 are needed"),
    ],
)
def test_bad_images_are_refused_with_the_place(content, part, tmp_path):
    images = tmp_path / "images.csv"
    images.write_text(content, encoding="ascii")
    run = plain("train_resnet", "--steps", 1, "--images", images, expect=(2,))
    assert part in run["error"]


def test_other_images_can_be_learnt(tmp_path):
    images = tmp_path / "images.csv"
    rows = [",".join(str((7 * row + 3 * at) % 256) for at in range(64)) for row in range(40)]
    images.write_text("".join(f"{row},{at % 3}\n" for at, row in enumerate(rows)), encoding="ascii")
    assert len(plain("train_resnet", "--steps", 2, "--images", images).steps) == 2


@pytest.mark.parametrize("arguments", [("--heads", 4), ("--momentum", 0.5)])
def test_options_of_another_program_are_unknown(arguments):
    done = subprocess.run(
        [str(demolib.program("train_lstm")), *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == 2 and "train_lstm --help" in done.stderr


@pytest.mark.parametrize(
    "name, arguments, share",
    [
        ("train_resnet", ("--width", 8, "--layers", 2, "--batch", 32), 0.55),
        ("train_lstm", ("--width", 64, "--context", 32, "--batch", 16), 0.6),
        ("train_lstm", ("--width", 64, "--context", 32, "--batch", 16, "--fused"), 0.75),
    ],
    ids=["resnet", "lstm", "fused lstm"],
)
def test_bit_identical_and_within_the_budget_from_step_1(name, arguments, share, tmp_path):
    arguments = (*arguments, "--steps", 12, "--grad-digest")
    reference = plain(name, *arguments, "--limit", demolib.NO_LIMIT)
    budget = int(reference.peak() * share)
    run = demolib.train(
        *SMALL[name], "--budget", budget, "--directory", tmp_path, *arguments, name=name
    )
    assert demolib.differences(run, reference) == []
    assert run.peak() <= budget
    assert run["session"]["steps_over_budget"] == 0
    assert run["plan"]["decisions"] > 0  # else the budget asks for nothing
    assert run["session"]["mismatched"] == 0
    # The scratch space of a fused layer cannot be compared; it must not hold verification up.
    assert len(run.in_phase("enforce")) >= 4

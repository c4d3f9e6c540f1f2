"""`ckptbench-probe check resume` on real trainings: each verdict, with a training that deserves it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.study.probed_training import (
    EXAMPLES,
    Checked,
    checked,
    cold,
    torchrun,
    warm,
)
from tests.study.selection import FULL

RESUMING = Path(__file__).with_name("probe_resumes.py")
KILL_AT, SAVED_AT = 5, 3
LOST = f"lost work: {KILL_AT - SAVED_AT} updates, killed after update {KILL_AT}, resumed from {SAVED_AT}"


def check(
    folder: Path, *command: str, kill_at: int = KILL_AT, options: tuple[str, ...] = ()
) -> Checked:
    words = ["--kill-at", str(kill_at), "--timeout", "2", *options]
    return checked(folder, "resume", *words, "--", *command)


def updates(found: Checked, run: str) -> list[int]:
    """Of each process that updated, how many updates its trace has."""
    counts = []
    for path in sorted((Path(found.report["runs"]) / run).glob("trace-*.jsonl")):
        events = [json.loads(line) for line in path.read_text().splitlines()]
        counts.append(sum(1 + len(e["then_us"]) for e in events if e["event"] == "updates"))
    return [count for count in counts if count]


def training(*options: str) -> list[str]:
    return [warm("pytorch", "check resume"), str(RESUMING), "{folder}", *options]


@pytest.mark.frameworks("pytorch")
def test_a_sound_training_is_the_same(tmp_path: Path) -> None:
    """The resumed run starts cold, as a user's does, and is compared with runs that start warm, whose NumPy was seeded once for all."""
    again = f"{cold('pytorch')} {RESUMING} {{folder}}"
    found = check(tmp_path, *training(), options=("--resume", again))
    assert found.lines[:-1] == [
        "same from update 4 to 8, bit by bit: 27 tensors of model and optimizer, 1 beside them, 34 that it saves, random states and learning rates of the one rank",
        LOST,
        "not restored: the random state of numpy, and no update has drawn from it; a later draw would differ",
    ]
    assert (found.report["exit_code"], found.report["resumed_from"]) == (0, 3)
    assert updates(found, "undisturbed") == [8]
    assert updates(found, "killed") == [KILL_AT]


@pytest.mark.frameworks("pytorch")
@pytest.mark.parametrize(
    ("missing", "first", "reason"),
    [
        (
            "random",
            "SILENTLY DIFFERENT from update 4 on (rank 0): 18 of 27 tensors, 1 beside them, rng different (torch), lr same; resumed from 3",
            "missing: the random state of torch",
        ),
        (
            "data",
            "SILENTLY DIFFERENT from update 4 on (rank 0): 20 of 27 tensors, 1 beside them, rng same, lr same; resumed from 3",
            "perhaps missing: the order of the data, or a random generator of the program's own",
        ),
        (
            "scheduler",
            "SILENTLY DIFFERENT from update 5 on (rank 0): 6 of 27 tensors, 1 beside them, rng same, lr different; resumed from 3",
            "missing: the learning rate, of a scheduler or of the optimizer's groups: 0.09 instead of 0.06561",
        ),
        (
            "optimizer",
            "SILENTLY DIFFERENT from update 4 on (rank 0): 24 of 27 tensors, 1 beside them, rng same, lr ",
            "missing: the restored state is already different at the resume: 18 of 24 tensors, all slots of the optimizer",
        ),
        (
            "model",
            "SILENTLY DIFFERENT from update 4 on (rank 0): 21 of 27 tensors, 1 beside them, rng same, lr same; resumed from 3",
            "missing: the restored state is already different at the resume: 6 of 24 tensors, none a slot of the optimizer",
        ),
        (
            "average",
            "SILENTLY DIFFERENT from update 4 on (rank 0): 0 of 27 tensors, 1 beside them, rng same, lr same; resumed from 3",
            "missing: what lives beside the model is already different at the resume: average.0",
        ),
    ],
)
def test_what_is_not_restored_is_named(
    missing: str, first: str, reason: str, tmp_path: Path
) -> None:
    found = check(tmp_path, *training("--missing", missing))
    assert found.report["exit_code"] == 1
    assert found.lines[0].startswith(first)
    assert found.lines[1].startswith(reason)
    assert LOST in found.lines


@pytest.mark.frameworks("pytorch")
def test_an_average_that_is_lost_is_seen_in_its_file(tmp_path: Path) -> None:
    """Its arrays are of NumPy: no object of PyTorch has them. Each engine writes a file with all six."""
    found = check(tmp_path, *training("--average"))
    assert found.report["exit_code"] == 1
    assert found.lines[0] == "SILENTLY DIFFERENT from update 6 on (rank 0): 0 of 27 tensors, 24 tensors that it saves, rng same, lr same; resumed from 3"  # fmt: skip
    lost = {name.partition(": ")[0] for name in found.report["first"]["saved"]}
    assert lost == {"average.safetensors", "average.npz", "average.pkl", "average.pt"}
    assert found.lines[1].startswith("missing: what the program saves beside its model: average.")


@pytest.mark.frameworks("pytorch")
def test_a_resume_that_makes_its_epochs_again_ends_too_late(tmp_path: Path) -> None:
    found = check(tmp_path, *training("--missing", "epochs"))
    assert found.report["exit_code"] == 1
    assert found.lines[0].startswith("DIFFERENT: ends after 11 updates in place of 8; same from update 4 to 8, ")  # fmt: skip


@pytest.mark.frameworks("pytorch")
@pytest.mark.parametrize("options", [[], ["--fused"]])
def test_runs_are_aligned_by_updates_that_a_scaler_lets_be_made(
    options: list[str], tmp_path: Path
) -> None:
    """The third batch was the second update. A fused optimizer is called for the first batch, too, and does nothing."""
    options = ["--scaler", *options]
    lost = check(tmp_path / "lost", *training(*options, "--missing", "scaler"))
    assert lost.report["exit_code"] == 1
    assert lost.lines[0].startswith("SILENTLY DIFFERENT from update 3 on (rank 0): ")
    assert lost.lines[0].endswith("resumed from 2")
    assert lost.lines[1] == "missing: the state of the scaler, or what else decides whether an update is made: the resumed run left out 1 update more than the undisturbed one"  # fmt: skip
    kept = check(tmp_path / "kept", *training(*options))
    assert (kept.report["exit_code"], kept.report["resumed_from"]) == (0, 2)


@pytest.mark.frameworks("pytorch")
def test_weights_that_are_clamped_after_each_update_are_found_again(tmp_path: Path) -> None:
    """SGD counts no updates: what tells the one resumed from is the state that was saved."""
    found = check(tmp_path, *training("--clamp", "--optimizer", "sgd"))
    assert (found.report["exit_code"], found.report["resumed_from"]) == (0, 3)
    assert found.report["restored"] is None


@pytest.mark.frameworks("pytorch")
def test_a_loader_that_begins_anew_is_told_from_a_lost_random_state(tmp_path: Path) -> None:
    guessed = check(tmp_path / "guessed", *training("--loader"))
    assert "rng different (torch)" in guessed.lines[0]
    assert guessed.lines[1].startswith("perhaps missing: the place in the data: the random state of torch was restored, ")  # fmt: skip
    assert "--data" in guessed.lines[2]
    python = warm("pytorch", "check resume --data")
    command = (python, str(RESUMING), "{folder}", "--loader")
    known = check(tmp_path / "known", *command, options=("--data",))
    assert known.lines[1].startswith("missing: the place in the data: the model gets other batches in update 4: ")  # fmt: skip
    assert not any("guessed" in line for line in known.lines)


@pytest.mark.frameworks("pytorch")
def test_a_save_counts_at_the_update_whose_state_it_holds(tmp_path: Path) -> None:
    """A thread begins to write it when one update more is made."""
    found = check(tmp_path, *training("--behind"))
    assert found.report["exit_code"] == 0
    assert found.lines[1:-1] == [LOST]


@pytest.mark.frameworks("pytorch")
def test_a_resume_that_is_ignored_began_again(tmp_path: Path) -> None:
    found = check(tmp_path, *training("--missing", "checkpoint"))
    assert found.report["exit_code"] == 1
    assert found.lines[0] == 'does not resume: it started from 0, although the save of update 3 was finished. If another command resumes, name it: --resume "COMMAND"'  # fmt: skip


@pytest.mark.frameworks("pytorch")
def test_a_save_that_was_under_way_at_the_kill_is_lost(tmp_path: Path) -> None:
    """SGD counts no updates: the state itself tells which one it is of."""
    found = check(tmp_path, *training("--stuck", "--optimizer", "sgd"), kill_at=7)
    assert found.report["exit_code"] == 0
    assert found.lines[0].startswith("same from update 4 to 8")
    assert found.lines[1] == "the save of update 6 was lost: it had not been committed at the kill (asynchronous)"  # fmt: skip


@pytest.mark.frameworks("pytorch")
@pytest.mark.parametrize("example", ["gpt_ddp", *(["gpt_fsdp"] if FULL else [])])
def test_examples_of_two_ranks_are_the_same(example: str, tmp_path: Path) -> None:
    """What that of FSDP restores is compared in test_probe_resume_ranks.py, too."""
    script = str(EXAMPLES / f"{example}.py")
    options = ["--folder", "{folder}", "--steps", "7", "--save-every", "2"]
    found = check(tmp_path, *torchrun(warm("pytorch", "check resume"), script, *options))
    assert found.report["exit_code"] == 0, found.lines
    assert found.lines[0].endswith("random states and learning rates of 2 ranks")
    # The save of update 4 waits for that of 2, and may be cut off itself.
    assert found.report["resumed_from"] in ((4,) if example == "gpt_ddp" else (2, 4))
    assert updates(found, "killed") == [KILL_AT] * 2


@pytest.mark.frameworks("tensorflow")
def test_a_backup_of_keras_lacks_the_random_state_of_dropout(tmp_path: Path) -> None:
    """It restores inside an epoch, and skips the batches that are done."""
    script = RESUMING.with_name("probe_resumes_keras.py")
    found = check(tmp_path, warm("tensorflow", "check resume"), str(script), "{folder}")
    assert found.report["exit_code"] == 1
    assert found.lines[0].startswith("SILENTLY DIFFERENT from update 4 on (rank 0): ")
    assert found.lines[0].endswith("lr same; resumed from 3")
    assert found.report["restored"] is None
    assert found.report["first"]["random"] == ["seed_generator/seed_generator_state"]
    assert updates(found, "killed") == [KILL_AT]

"""`ckptbench-probe check stop` on real trainings: each verdict, with a training that deserves it, and the handlers of trainers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.study.probed_training import Checked, checked, cold, torchrun, warm

STOPS = Path(__file__).with_name("probe_stops.py")
TRAINERS = STOPS.with_name("probe_stops_trainers.py")
AT = "6"
SLURM = {"SLURM_JOB_ID": "1", "SLURM_JOB_NAME": "train", "SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}  # fmt: skip
PATIENT, SHORT = "120s", "10s"
"""Graces: of trainings that end, and of those that SIGKILL must end."""


def check(folder: Path, grace: str, *command: str, options: tuple[str, ...] = ()) -> Checked:
    return checked(
        folder,
        "stop",
        *(options if "--at" in options else ("--at", AT, *options)),
        "--grace",
        grace,
        "--",
        *command,
    )


def stopped(folder: Path, how: str, grace: str, *options: str, ranks: int = 1) -> Checked:
    python = warm("pytorch", "check resume")
    program = (str(STOPS), "{folder}", how)
    command = [python, *program] if ranks == 1 else torchrun(python, *program, ranks=ranks)
    return check(folder, grace, *command, options=options)


@pytest.mark.frameworks("pytorch")
def test_a_training_that_saves_and_ends(tmp_path: Path) -> None:
    found = stopped(tmp_path, "saves", PATIENT)
    assert re.fullmatch(r"saves and ends in .* of the 2.0 min: 0 updates lost, stopped after update 7, resumed from 7", found.lines[0])  # fmt: skip
    assert re.fullmatch(r"paste: #SBATCH --signal=B:TERM@\d+0 \(and end the batch script with `exec COMMAND`, without srun\)", found.lines[1])  # fmt: skip
    assert (found.report["exit_code"], found.report["lost_updates"]) == (0, 0)


@pytest.mark.frameworks("pytorch")
def test_torchrun_hands_the_signal_on(tmp_path: Path) -> None:
    found = stopped(tmp_path, "saves", PATIENT, ranks=2)
    assert found.report["exit_code"] == 0
    assert found.report["resumed_from"] >= int(AT)
    assert found.report["lost_updates"] == 0


@pytest.mark.frameworks("pytorch")
@pytest.mark.parametrize(
    ("how", "options", "told"),
    [
        ("exits", ("--to", "ranks"), "3 updates lost, stopped after update 7, resumed from 4"),
        ("dies", ("--to", "all"), "2 updates lost, stopped after update 6, resumed from 4"),
    ],
)
def test_a_training_that_ends_without_a_save(
    how: str, options: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    found = stopped(tmp_path, how, PATIENT, *options)
    assert found.lines[0].startswith("ends without a save, in ")
    assert found.lines[0].endswith(told)
    assert (found.report["exit_code"], found.report["paste"]) == (3, None)


@pytest.mark.frameworks("pytorch")
@pytest.mark.parametrize(
    ("how", "code", "begin", "more"),
    [
        ("slow", 4, "saves too late: the save was not finished after 10 s: 3 updates lost", "the save of partial.pt was cut off, and the resume did not take it"),
        ("thread", 4, "ends before its save was finished, in ", "the save of partial.pt was cut off, and the resume did not take it"),
        ("in-place", 1, "TORN: the save of step-7.pt was cut off, and the resume takes it: it failed", "rank 0 stood in probe_stops.py:"),
        ("ignores", 5, "ignores SIGTERM: it trains on until SIGKILL after 10 s, ", "rank 0 stood in "),
        ("trains-on", 0, "saves in ", "paste: #SBATCH --signal=B:TERM@"),
    ],
)  # fmt: skip
def test_a_training_whose_save_or_end_does_not_come_in_time(
    how: str, code: int, begin: str, more: str, tmp_path: Path
) -> None:
    found = stopped(tmp_path, how, SHORT)
    assert found.report["exit_code"] == code
    assert found.lines[0].startswith(begin)
    assert any(line.startswith(more) for line in found.lines)


@pytest.mark.frameworks("pytorch")
@pytest.mark.parametrize(
    ("how", "options", "told"),
    [
        ("partly", (), "cannot tell: the training is not resumed from a whole update (6 of 8 tensors are not those of update 7), though no save was cut off: run check resume first"),
        ("dies", ("--at", "8"), "cannot tell: update 8 was saved just before the signal: choose another --at"),
    ],
)  # fmt: skip
def test_it_says_when_it_cannot_tell(
    how: str, options: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    found = stopped(tmp_path, how, PATIENT, *options)
    assert (found.report["exit_code"], found.lines[0]) == (2, told)


@pytest.mark.frameworks("pytorch")
def test_ranks_that_wait_for_one_another_hang(tmp_path: Path) -> None:
    found = stopped(tmp_path, "one-rank", SHORT, ranks=2)
    assert found.report["exit_code"] == 6
    assert found.lines[0].startswith("hangs: it has saved, and stands still until SIGKILL after ")
    assert found.lines[1].startswith("rank 0 stood in barrier, called by probe_stops.py:")
    assert found.lines[2].startswith("rank 1 stood in all_reduce, called by probe_stops.py:")


@pytest.mark.frameworks("trainers")
def test_the_trainer_of_hugging_face_saves_at_sigterm_if_it_is_asked(tmp_path: Path) -> None:
    """It waits for three seconds before it does."""
    python = warm("trainers", "check resume")
    found = check(tmp_path / "jit", PATIENT, python, str(TRAINERS), "{folder}", "jit")
    assert found.report["exit_code"] == 0, found.lines
    assert found.report["took_s"] > 3
    found = check(tmp_path / "hf", PATIENT, python, str(TRAINERS), "{folder}", "hf")
    assert found.report["exit_code"] == 3, found.lines


@pytest.mark.frameworks("trainers")
def test_lightning_saves_at_sigusr1_under_slurm_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [warm("trainers", "check resume"), str(TRAINERS), "{folder}", "lightning"]
    found = check(tmp_path / "alone", PATIENT, *command)
    assert (found.report["exit_code"], found.report["resumed_from"]) == (3, 0), found.lines
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    found = check(tmp_path / "slurm", SHORT, *command, options=("--signal", "USR1"))
    assert found.report["exit_code"] == 0, found.lines
    assert found.lines[0].startswith("saves in ")


@pytest.mark.frameworks("trainers")
def test_accelerate_ends_and_leaves_its_process(tmp_path: Path) -> None:
    launch = (cold("trainers"), "-m", "accelerate.commands.launch", "--cpu", "--num_processes=1", "--no_python")  # fmt: skip
    program = (warm("trainers", "check resume"), str(STOPS), "{folder}", "saves")
    found = check(tmp_path, PATIENT, *launch, *program, options=("--resume", " ".join(program)))
    assert found.report["exit_code"] == 3, found.lines
    assert found.lines[0].startswith("ends without a save: SIGTERM ended the command itself, and left its ranks to SIGKILL: ")  # fmt: skip
    assert "start the ranks by exec, or have the command hand the signal on" in found.lines

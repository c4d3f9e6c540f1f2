"""Runs, datasets and environments that would be made from something else now: told by their own records, on any machine."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ckptbench.data import sources
from ckptbench.data.dataset import dataset_sha256
from ckptbench.data.sources.cifar10 import Cifar10
from ckptbench.data.sources.nt3 import Nt3
from ckptbench.data.sources.synthetic import Synthetic
from ckptbench.environments import ready
from ckptbench.environments.folder import environment_sha256
from ckptbench.environments.lock_file import pinned, pinned_sha256
from ckptbench.machine.files import file_sha256, write_json
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.interval import Interval
from ckptbench.matrix.variant import Variant
from ckptbench.runs.finished import made_from
from ckptbench.runs.plan import Plan
from ckptbench.runs.training import Training
from ckptbench.study.outdated_runs import StudyRuns

TINY = {"height": 2, "width": 2, "channels": 1, "classes": 2, "train_samples": 4, "test_samples": 2}
CELL = Cell(
    framework="pytorch", model="small_cnn", dataset="synthetic", ranks=2, batch_size=1, epochs=1, format="torch_save",
    interval=Interval.parse("e1"), faults=Variant("listed", (("name", "mine"),)),
)  # fmt: skip
TRAINING = Training(
    seed=1, learning_rate=0.1, momentum=0.9, weight_decay=0.0, steps_per_epoch=None, test_samples=None, warmup_steps=1,
    keep_during_run=2,
)  # fmt: skip
OTHER = dataclasses.replace(TRAINING, seed=2)
LISTED = {"mine": [{"step": 1, "rank": 0}]}


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StudyRuns:
    """A study in the working folder, with one sealed run."""
    monkeypatch.chdir(tmp_path)
    Path("envs").mkdir()
    Path("envs/pytorch.txt").write_text("numpy==2.0\ntorch==2.13.0\n")
    Path("envs/constraints.txt").write_text("setuptools==73\n")
    sources.prepare("synthetic", Path("datasets/synthetic"), TINY)
    study = StudyRuns(
        training=TRAINING,
        runs=Path("results/runs"),
        checkpoints=Path("results/runs"),
        datasets=Path("datasets"),
        outdated_datasets=frozenset(),
        locks=Path("envs"),
        constraints=Path("envs/constraints.txt"),
        levels={"memory_folder": None},
        listed=LISTED,
    )
    seal(study)
    return study


def seal(study: StudyRuns) -> None:
    """As the launcher does, which has the whole environment at hand."""
    folder = study.runs / CELL.id
    folder.mkdir(parents=True)
    lock = study.locks / "pytorch.txt"
    plan = Plan(
        cell=CELL,
        training=study.training,
        dataset_folder=(study.datasets / "synthetic").resolve(),
        run_folder=folder.resolve(),
        checkpoint_folder=(study.checkpoints / CELL.id / "checkpoints").resolve(),
        run_id="of this run",
        dataset_sha256=dataset_sha256(study.datasets / "synthetic"),
        lock_sha256=pinned_sha256(lock),
        listed=tuple(LISTED["mine"]),
    )
    made = made_from(
        plan,
        environment_sha256=environment_sha256(ready.described(lock, study.constraints)),
        levels=study.levels,
    )
    write_json(folder / "seal.json", {})
    write_json(folder / "seal-copy.json", {"seal": {}, "made_from": made})


def changes(study: StudyRuns, **other: Any) -> list[str]:
    return dataclasses.replace(study, **other).changes([CELL]).get(CELL.id, [])


def test_a_run_that_would_be_made_from_the_same_is_up_to_date(study: StudyRuns) -> None:
    assert changes(study) == []


def test_a_copy_of_the_study_has_the_same_runs(
    study: StudyRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.rename(elsewhere := tmp_path.with_name("elsewhere"))
    monkeypatch.chdir(elsewhere)
    assert changes(study) == []
    elsewhere.rename(tmp_path)


def test_a_run_of_a_version_that_noted_whole_paths_and_no_levels_is_up_to_date(
    study: StudyRuns,
) -> None:
    copy = study.runs / CELL.id / "seal-copy.json"
    content = json.loads(copy.read_text())
    made = content["made_from"]
    made["checkpoint_folder"] = f"/another/clone/results/runs/{CELL.id}/checkpoints"
    made["ckptbench_version"] = "0.0.1"
    del made["checkpoints.memory_folder"]
    copy.write_text(json.dumps(content))
    assert changes(study) == []
    made["checkpoint_folder"] = f"/scratch/{CELL.id}/checkpoints"
    copy.write_text(json.dumps(content))
    assert changes(study) == ["checkpoint_folder"]


def test_a_disk_whose_path_ends_as_that_of_the_study_is_another_place(study: StudyRuns) -> None:
    copy = study.runs / CELL.id / "seal-copy.json"
    content = json.loads(copy.read_text())
    content["made_from"]["checkpoint_folder"] = f"/fast/results/runs/{CELL.id}/checkpoints"
    copy.write_text(json.dumps(content))
    assert changes(study) == ["checkpoint_folder"]


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"training": OTHER}, "training.seed"),
        ({"checkpoints": Path("/scratch")}, "checkpoint_folder"),
        ({"checkpoints": Path("elsewhere")}, "checkpoint_folder"),
        ({"levels": {"memory_folder": "/dev/shm/me"}}, "checkpoints.memory_folder"),
        ({"listed": {"mine": [{"step": 2, "rank": 0}]}}, "listed"),
        ({"outdated_datasets": frozenset({"synthetic"})}, "the dataset synthetic"),
    ],
)
def test_another_question_makes_a_run_outdated(
    study: StudyRuns, other: dict[str, Any], named: str
) -> None:
    assert changes(study, **other) == [named]


def test_another_lock_and_another_dataset_make_a_run_outdated(study: StudyRuns) -> None:
    Path("envs/pytorch.txt").write_text("numpy==2.1\ntorch==2.13.0\n")
    assert changes(study) == ["lock_sha256", "environment_sha256"]
    Path("envs/pytorch.txt").write_text("numpy==2.0\ntorch==2.13.0\n")
    sources.prepare("synthetic", Path("datasets/synthetic"), {**TINY, "seed": 7})
    assert changes(study) == ["dataset_sha256"]


def test_a_run_is_kept_where_its_dataset_or_its_record_is_gone(study: StudyRuns) -> None:
    Path("datasets/synthetic/dataset.json").unlink()
    assert changes(study) == []
    (study.runs / CELL.id / "seal-copy.json").unlink()
    assert changes(study, training=OTHER) == []


def test_a_run_that_is_not_sealed_is_not_outdated_but_missing(study: StudyRuns) -> None:
    (study.runs / CELL.id / "seal.json").unlink()
    assert changes(study, training=OTHER) == []


def test_hashes_in_a_lock_change_no_environment(tmp_path: Path) -> None:
    plain, hashed = tmp_path / "plain.txt", tmp_path / "hashed.txt"
    plain.write_text("numpy==2.0\nuvloop==1 ; sys_platform != 'win32'\n")
    hashed.write_text(
        "numpy==2.0 \\\n    --hash=sha256:12 \\\n    --hash=sha256:34\n"
        "uvloop==1 ; sys_platform != 'win32' \\\n    --hash=sha256:56\n"
    )
    assert pinned(hashed) == plain.read_text()
    # As locks without hashes were recorded before.
    assert pinned_sha256(hashed) == file_sha256(plain)


@pytest.mark.parametrize(
    ("edit", "changed"),
    [
        (lambda lock, _: lock.touch(), []),
        (lambda lock, _: lock.write_text("numpy==3\n"), ["sha256"]),
        (lambda lock, _: lock.write_text("numpy==2\nhorovod==0.28.1\n"), ["sha256", "recipe"]),
        (lambda _, constraints: constraints.write_text("setuptools==1\n"), ["constraints"]),
    ],
)
def test_an_environment_is_outdated_by_the_content_of_its_lock(
    tmp_path: Path, edit: Callable[[Path, Path], object], changed: list[str]
) -> None:
    lock, constraints = tmp_path / "mine.txt", tmp_path / "constraints.txt"
    lock.write_text("numpy==2\n")
    constraints.write_text("")
    write_json(tmp_path / "ready.json", ready.described(lock, constraints))
    edit(lock, constraints)
    assert ready.changes(tmp_path, ready.described(lock, constraints)) == changed


def test_an_environment_of_an_older_version_is_up_to_date(tmp_path: Path) -> None:
    lock, constraints = tmp_path / "mine.txt", tmp_path / "constraints.txt"
    lock.write_text("numpy==2\n")
    constraints.write_text("")
    old = {"lock": "mine.txt", "sha256": file_sha256(lock)}
    write_json(tmp_path / "ready.json", old)
    wanted = ready.described(lock, constraints)
    assert ready.changes(tmp_path, wanted) == []
    assert environment_sha256(wanted) == file_sha256(tmp_path / "ready.json")


def test_an_environment_that_is_missing_is_not_outdated_and_a_spoilt_one_is(tmp_path: Path) -> None:
    wanted = {"lock": "mine.txt", "sha256": "12", "constraints": "34"}
    assert ready.changes(tmp_path, wanted) == []
    (tmp_path / "ready.json").write_text("{")
    assert ready.changes(tmp_path, wanted) == ["ready.json"]


def test_a_dataset_is_outdated_by_its_settings_and_its_code(tmp_path: Path) -> None:
    sources.prepare("synthetic", tmp_path, TINY)
    assert sources.changes(tmp_path, Synthetic(**TINY)) == []
    assert sources.changes(tmp_path, Synthetic(**{**TINY, "seed": 3})) == ["seed"]
    description = json.loads((tmp_path / "dataset.json").read_text())
    description["made_from"]["source_sha256"] = "older"
    write_json(tmp_path / "dataset.json", description)
    assert sources.changes(tmp_path, Synthetic(**TINY)) == ["source_sha256"]
    del description["made_from"]
    write_json(tmp_path / "dataset.json", description)
    assert sources.changes(tmp_path, Synthetic(**TINY)) == ["dataset.json"]


def test_a_dataset_is_outdated_by_the_content_of_its_files_and_not_by_their_place(
    tmp_path: Path,
) -> None:
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        for name in ("nt_train2.csv", "nt_test2.csv"):
            (tmp_path / place / name).write_text("1,2")
    here, there = (Nt3(folder=str(tmp_path / place)) for place in ("here", "there"))
    write_json(tmp_path / "dataset.json", {"made_from": sources.made_from(here)})
    assert sources.changes(tmp_path, there) == []
    assert sources.changes(tmp_path, Nt3()) == [], "the config of a copy names none"
    (tmp_path / "there/nt_test2.csv").write_text("1,3")
    assert sources.changes(tmp_path, there) == ["files"]
    assert Cifar10(archive="/elsewhere.tar.gz").identity() == Cifar10().identity()

"""A run goes on only from its own checkpoints, and shares their folder with no other run."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from in_process import in_job, interrupt, last_digest, stop, versions
from stored_versions import staged, write
from strategies import IDENTITY

from ckptbench.analysis.collect.run_folder import Run
from ckptbench.checkpointing.store import CheckpointStore
from ckptbench.checkpointing.version import open_version
from ckptbench.common.errors import LaunchError
from ckptbench.common.files import read_json
from ckptbench.inputs.datasets.dataset import dataset_sha256
from ckptbench.inputs.datasets.sources import prepare
from ckptbench.launch.folder_locks import checkpoint_folder_locked
from ckptbench.launch.run import Execution, run_cell
from ckptbench.run.identity import Identity
from ckptbench.run.layout import FILES, MANIFEST_FIELDS
from ckptbench.run.plan import Plan

MakePlan = Callable[..., Plan]


def resuming(execution: Execution) -> Execution:
    return dataclasses.replace(execution, resume=True)


def manifest(plan: Plan) -> dict[str, object]:
    return read_json(plan.run_folder / "manifest.json")


def trained_with(plan: Plan, **changes: object) -> Plan:
    training = dataclasses.replace(plan.training, **changes)  # type: ignore[arg-type]
    return dataclasses.replace(plan, training=training)


def test_a_version_says_of_which_run_training_dataset_and_lock_it_is(
    make_plan: MakePlan, execution: Execution
) -> None:
    plan = make_plan("e1")
    run_cell(plan, dataclasses.replace(execution, keep_after_run=9))
    found = {open_version(path).identity.run_id for path in plan.checkpoint_folder.glob("v*")}
    assert found == {manifest(plan)["run_id"]}
    identity = open_version(plan.checkpoint_folder / "version-00000012").identity
    assert identity.cell == plan.cell.to_json()
    assert identity.training == dataclasses.asdict(plan.training)
    assert identity.dataset_sha256 == dataset_sha256(plan.dataset_folder)
    assert identity.lock_sha256 == plan.lock_sha256


def test_a_run_leaves_what_its_page_says(make_plan: MakePlan, execution: Execution) -> None:
    plan = make_plan("e1")
    run_cell(plan, dataclasses.replace(execution, keep_after_run=1))
    assert set(manifest(plan)) == set(MANIFEST_FIELDS)
    names = {re.sub(r"-\d+", "-<rank>", path.name) for path in plan.run_folder.iterdir()}
    assert names <= {name.rstrip("/") for name in FILES}


def test_a_difference_is_named_with_both_values() -> None:
    own = Identity(
        run_id="a" * 32,
        cell={"ranks": 1},
        training={"seed": 1},
        dataset_sha256="b",
        lock_sha256="c",
    )
    assert own.another_run(own) == ""
    other = dataclasses.replace(own, cell={"ranks": 2}, training={}, lock_sha256="0123456789abcdef")
    assert other.another_training(own) == other.another_run(own)
    assert other.another_training(own) == (
        "cell.ranks is 2 there and 1 here, training.seed is missing there and 1 here, "
        "lock_sha256 is '0123456789ab' there and 'c' here"
    )
    again = dataclasses.replace(own, run_id="f" * 32)
    assert again.another_training(own) == ""
    assert again.another_run(own) == "run_id is 'ffffffffffff' there and 'aaaaaaaaaaaa' here"


def change_training(plan: Plan, execution: Execution, tmp_path: Path) -> Plan:
    return trained_with(plan, learning_rate=0.2)


def change_lock(plan: Plan, execution: Execution, tmp_path: Path) -> Plan:
    return dataclasses.replace(plan, lock_sha256="another")


def remake_dataset(plan: Plan, execution: Execution, tmp_path: Path) -> Plan:
    shape = {"height": 4, "width": 4, "channels": 1, "classes": 3}
    samples = {"train_samples": 64, "test_samples": 16}
    prepare("synthetic", tmp_path / "synthetic", {**shape, **samples, "seed": 7})
    folder = tmp_path / "synthetic"
    return dataclasses.replace(plan, dataset_folder=folder, dataset_sha256=dataset_sha256(folder))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (change_training, "training.learning_rate is 0.1 there and 0.2 here"),
        (change_lock, "lock_sha256 is '"),
        (remake_dataset, "dataset_sha256 is '"),
    ],
)
def test_after_a_change_a_run_with_resume_starts_over_and_says_what_differs(  # noqa: PLR0917
    make_plan: MakePlan,
    execution: Execution,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    change: Callable[[Plan, Execution, Path], Plan],
    words: str,
) -> None:
    plan = make_plan("e1")
    interrupt(plan, execution, monkeypatch, steps=9)
    changed = change(plan, execution, tmp_path)
    run_cell(changed, resuming(execution))
    assert manifest(plan)["attempts"] == 1
    assert "is not continued, because it is of another training: " in caplog.text
    assert words in caplog.text
    anew = dataclasses.replace(changed, run_folder=tmp_path / "anew")
    run_cell(dataclasses.replace(anew, checkpoint_folder=tmp_path / "anew" / "c"), execution)
    assert last_digest(changed) == last_digest(anew)


def test_after_a_change_of_the_lock_a_requeued_job_starts_over(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan("never")
    in_job(monkeypatch, "42")
    stop(plan, execution, monkeypatch, after=3)
    assert versions(plan) == ["version-00000003"]
    run_cell(dataclasses.replace(plan, lock_sha256="another"), execution)
    assert Run.read(plan.run_folder).manifest["attempts"] == 1


@pytest.mark.parametrize("rate", [0.1, 0.2])
def test_a_folder_set_back_to_an_earlier_one_does_not_bring_back_another_training(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    caplog: pytest.LogCaptureFixture, *, rate: float,
) -> None:  # fmt: skip
    """Interrupted with one folder and then with another one; both attempts are of this run folder."""
    first = dataclasses.replace(make_plan("e1"), checkpoint_folder=tmp_path / "first")
    interrupt(first, execution, monkeypatch, steps=9)
    changed = trained_with(first, learning_rate=rate)
    second = dataclasses.replace(changed, checkpoint_folder=tmp_path / "second")
    interrupt(second, execution, monkeypatch, steps=5)
    run_cell(changed, resuming(execution))
    if rate == 0.1:
        assert manifest(first)["attempts"] == 2
        assert f"the traces in {first.run_folder} are of another run: the run goes" in caplog.text
        assert (first.run_folder / "kept-1" / "trace-0.jsonl").exists()
    else:
        assert manifest(first)["attempts"] == 1
        assert "of another training: training.learning_rate is 0.1 there and 0.2 h" in caplog.text
        assert len([*(tmp_path / "first" / "kept-1").iterdir()]) == 2
    anew = dataclasses.replace(changed, run_folder=tmp_path / "anew")
    run_cell(dataclasses.replace(anew, checkpoint_folder=tmp_path / "anew" / "c"), execution)
    assert last_digest(changed) == last_digest(anew)


def sharing(plan: Plan, folder: Path) -> Plan:
    return dataclasses.replace(plan, checkpoint_folder=folder)


def test_checkpoints_of_another_run_folder_are_neither_read_nor_removed(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    one, two = (sharing(make_plan("e1", name=name), tmp_path / "shared") for name in ("1st", "2nd"))
    interrupt(one, execution, monkeypatch, steps=9)
    for how in (execution, resuming(execution)):
        with pytest.raises(
            LaunchError, match=rf"shared holds checkpoints of the run .*{one.run_folder.name}, and"
        ):
            run_cell(two, how)
    assert versions(one) == ["version-00000004", "version-00000008"]
    run_cell(one, resuming(execution))
    assert manifest(one)["attempts"] == 2
    run_cell(two, execution)  # the first run has left no version
    assert manifest(two)["attempts"] == 1


def test_checkpoints_of_nobody_are_cleared_only_inside_the_run_folder(
    make_plan: MakePlan, execution: Execution, tmp_path: Path
) -> None:
    inside, outside = make_plan("e1"), sharing(make_plan("e1", name="other"), tmp_path / "outside")
    for plan in (inside, outside):
        (plan.checkpoint_folder / "version-00000099").mkdir(parents=True)
    run_cell(inside, execution)
    assert versions(inside) == []
    with pytest.raises(LaunchError, match="outside holds checkpoints of an unknown run, and this"):
        run_cell(outside, execution)
    assert versions(outside) == ["version-00000099"]


def test_what_is_no_checkpoint_is_never_removed(make_plan: MakePlan, execution: Execution) -> None:
    plan = make_plan("e1")
    plan.checkpoint_folder.mkdir()
    (plan.checkpoint_folder / "notes.txt").write_text("mine")
    run_cell(plan, execution)
    assert (plan.checkpoint_folder / "notes.txt").read_text() == "mine"


def test_two_live_launchers_do_not_share_a_checkpoint_folder(
    make_plan: MakePlan, execution: Execution, tmp_path: Path
) -> None:
    one, two = (sharing(make_plan("e1", name=name), tmp_path / "shared") for name in ("1st", "2nd"))
    with checkpoint_folder_locked(one.checkpoint_folder, run_folder=one.run_folder):
        words = rf"shared is in use by process {os.getpid()} on {socket.gethostname()}, .*1st: wait"
        with pytest.raises(LaunchError, match=words):
            run_cell(two, execution)
    run_cell(two, execution)


HOLDER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from ckptbench.launch.folder_locks import checkpoint_folder_locked
with checkpoint_folder_locked(Path(sys.argv[2]), run_folder=Path(sys.argv[3])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_killed_launcher_leaves_no_lock(tmp_path: Path) -> None:
    source = Path(__file__).resolve().parents[2] / "src"
    command = [sys.executable, "-c", HOLDER, source, tmp_path / "checkpoints", tmp_path / "run"]
    holder = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    with (
        pytest.raises(LaunchError, match=f"in use by process {holder.pid} on"),
        checkpoint_folder_locked(tmp_path / "checkpoints", run_folder=tmp_path / "run"),
    ):
        raise AssertionError("two have the lock")
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    with checkpoint_folder_locked(tmp_path / "checkpoints", run_folder=tmp_path / "run"):
        assert json.loads((tmp_path / "checkpoints" / ".lock").read_text())["pid"] == os.getpid()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_used_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with checkpoint_folder_locked(tmp_path / "checkpoints", run_folder=tmp_path / "run"):
        assert "is on a file system without locks" in caplog.text


@pytest.mark.parametrize("lock", ["", "{", "[]", "{}"])
def test_a_lock_file_that_was_cut_short_names_nobody(tmp_path: Path, lock: str) -> None:
    (tmp_path / ".lock").write_text(lock)
    with checkpoint_folder_locked(tmp_path, run_folder=tmp_path / "run"):
        assert json.loads((tmp_path / ".lock").read_text())["run_folder"] == str(tmp_path / "run")


def other_byte(lock: Path) -> None:
    """In the path that it names."""
    lock.write_text(lock.read_text().replace('run_folder": "/', 'run_folder": "/x/'))


SPOILT_LOCKS: list[Callable[[Path], object]] = [
    lambda lock: lock.write_text(""),
    lambda lock: lock.write_bytes(lock.read_bytes()[:30]),
    lambda lock: lock.write_bytes(bytes(100)),
    lambda lock: lock.write_text('{"run_folder": 5}'),
    lambda lock: lock.write_text("[" * 100_000),
    lambda lock: lock.unlink(),
    other_byte,
]


@pytest.mark.parametrize("spoil", SPOILT_LOCKS)
@pytest.mark.parametrize("named_in", ["manifest.json", "plan.json"])
def test_versions_that_name_this_run_are_its_own_whatever_the_lock_file_says(
    tmp_path: Path, spoil: Callable[[Path], object], named_in: str
) -> None:
    """As after a power cut. One of the two files that name the run may be damaged, too."""
    run_folder, folder = tmp_path / "run", tmp_path / "shared"
    run_folder.mkdir()
    for name in ("manifest.json", "plan.json"):
        run_id = IDENTITY.run_id if name == named_in else None
        (run_folder / name).write_text(json.dumps({"run_id": run_id}))
    with checkpoint_folder_locked(folder, run_folder=run_folder):
        store = CheckpointStore(folder, keep=2)
        write(store, 1), staged(store, 2)
    spoil(folder / ".lock")
    with checkpoint_folder_locked(folder, run_folder=run_folder):
        assert json.loads((folder / ".lock").read_text())["run_folder"] == str(run_folder)


@pytest.mark.parametrize("spoil", SPOILT_LOCKS)
def test_versions_of_another_run_are_not_taken_because_the_lock_file_is_damaged(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    run_folder, folder = tmp_path / "run", tmp_path / "shared"
    run_folder.mkdir()
    (run_folder / "manifest.json").write_text(json.dumps({"run_id": "another"}))
    with checkpoint_folder_locked(folder, run_folder=tmp_path / "first"):
        write(CheckpointStore(folder, keep=2), 1)
    spoil(folder / ".lock")
    with (
        pytest.raises(
            LaunchError, match=r"shared holds checkpoints of .*: set checkpoints\.folder"
        ),
        checkpoint_folder_locked(folder, run_folder=run_folder),
    ):
        pass


def test_after_a_power_cut_that_took_the_lock_file_the_run_goes_on(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plan = sharing(make_plan("e1"), tmp_path / "shared")
    interrupt(plan, execution, monkeypatch, steps=9)
    (plan.checkpoint_folder / ".lock").write_text("")
    run_cell(plan, resuming(execution))
    assert manifest(plan)["attempts"] == 2


def test_a_run_whose_folder_was_removed_is_trained_again_and_its_kept_versions_stay(
    make_plan: MakePlan, execution: Execution, tmp_path: Path
) -> None:
    plan = sharing(make_plan("e1"), tmp_path / "shared")
    keeping = dataclasses.replace(resuming(execution), keep_after_run=1)
    run_cell(plan, keeping)
    shutil.rmtree(plan.run_folder)
    plan.run_folder.mkdir()
    run_cell(plan, keeping)
    run = Run.read(plan.run_folder)
    assert (run.manifest["attempts"], sorted(run.traces[0].epochs)) == (1, [0, 1, 2])
    open_version(tmp_path / "shared" / "kept-1" / "version-00000012")


def test_a_copy_of_a_run_folder_does_not_take_the_versions_of_the_first(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plan = sharing(make_plan("e1"), tmp_path / "shared")
    interrupt(plan, execution, monkeypatch, steps=9)
    copy = dataclasses.replace(plan, run_folder=tmp_path / "copy")
    shutil.copytree(plan.run_folder, copy.run_folder)
    with pytest.raises(LaunchError, match=r"shared holds checkpoints of the run .*/run, and this"):
        run_cell(copy, resuming(execution))
    plan.run_folder.rename(tmp_path / "gone")  # moved in place of copied
    run_cell(copy, resuming(execution))
    assert manifest(copy)["attempts"] == 2


@pytest.mark.parametrize("name", ["run/.lock", "shared/.lock"])
def test_a_fifo_in_place_of_a_lock_is_named(
    make_plan: MakePlan, execution: Execution, tmp_path: Path, never_hangs: None, name: str
) -> None:
    plan = sharing(make_plan("e1"), tmp_path / "shared")
    (tmp_path / name).parent.mkdir(exist_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(LaunchError, match=r"cannot be written: it is no regular file"):
        run_cell(plan, execution)


def test_a_checkpoint_folder_that_is_a_file_is_named(
    make_plan: MakePlan, execution: Execution
) -> None:
    plan = make_plan("e1")
    plan.checkpoint_folder.write_text("no folder")
    with pytest.raises(LaunchError, match=r"run/checkpoints cannot be written: .*; set check"):
        run_cell(plan, execution)


def test_a_checkpoint_folder_on_a_read_only_file_system_is_named(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan("e1")
    plan.checkpoint_folder.mkdir()
    opened = os.open

    def read_only(path: Path, flags: int, *mode: int, **named: int) -> int:
        if Path(path).parent == plan.checkpoint_folder and flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return opened(path, flags, *mode, **named)

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(
        LaunchError,
        match=r"checkpoints cannot be written: Read-only file system; .* mount it for writing, or set checkpoints.folder",
    ):
        run_cell(plan, execution)


def test_a_run_folder_that_is_a_file_is_named(make_plan: MakePlan, execution: Execution) -> None:
    plan = make_plan("e1")
    plan.run_folder.rmdir()
    plan.run_folder.write_text("no folder")
    with pytest.raises(LaunchError, match=r"run cannot be written: File exists; "):
        run_cell(plan, execution)


def test_a_run_that_goes_on_lasts_from_its_first_attempt(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan("e1")
    interrupt(plan, execution, monkeypatch, steps=6)
    first = read_json(plan.run_folder / "manifest.json")
    run_cell(plan, dataclasses.replace(execution, resume=True))
    last = read_json(plan.run_folder / "manifest.json")
    kept = ("started", "clock")
    assert [last[name] for name in kept] == [first[name] for name in kept]
    assert last["attempts"] == 2
    assert 0 < first["duration_s"] < last["duration_s"]

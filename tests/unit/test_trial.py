"""What a file system cannot do for a run is found before the first step, with the folder, the call and the remedy."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from numpy_framework import Unasked
from stored_versions import Busy, names

from ckptbench.audit import machine, storage
from ckptbench.audit.calibration import Size
from ckptbench.checkpoints import preflight, trial
from ckptbench.checkpoints.levels import open_levels
from ckptbench.checkpoints.trial import Unfit, try_files, try_versions
from ckptbench.common.errors import EnvironmentSetupError, LaunchError
from ckptbench.environments.folder import locked
from ckptbench.launch.run import Execution, run_cell
from ckptbench.matrix.levels import NODE
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.runs.plan import Plan
from ckptbench.strategies.state_files import FORMAT
from ckptbench.training import rank
from ckptbench.world.ranks import RankContext

MakePlan = Callable[..., Plan]
HERE = Path(__file__).parent
TRY = """
import sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from ckptbench.checkpoints.trial import Unfit, try_versions
try:
    try_versions(Path(sys.argv[1]))
except Unfit as unfit:
    print(unfit)
"""


def test_a_trial_leaves_nothing(tmp_path: Path) -> None:
    try_versions(tmp_path / "made"), try_versions(tmp_path / "made"), try_files(tmp_path / "made")
    assert names(tmp_path / "made") == []


def test_what_a_killed_trial_has_left_goes_with_the_next_trial(tmp_path: Path) -> None:
    host = socket.gethostname()
    ended = subprocess.Popen(["true"])
    ended.wait()
    for number in (ended.pid, os.getppid()):
        (tmp_path / f".trial-{host}-{number}" / "version").mkdir(parents=True)
    try_versions(tmp_path)
    assert names(tmp_path) == [f".trial-{host}-{os.getppid()}"], "that one still runs"


def test_the_remedy_names_the_folder_and_no_file_of_the_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> int:
        raise PermissionError(errno.EPERM, "Operation not permitted", path)

    monkeypatch.setattr(trial, "open_direct", refuse)
    with pytest.raises(Unfit) as raised:
        try_versions(tmp_path)
    said = raised.value.told("set checkpoints.folder to another folder")
    assert said.endswith(
        f"let this user write {tmp_path}, or set checkpoints.folder to another folder"
    )
    assert ".trial-" not in said


@pytest.fixture(scope="session")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("odd") / "odd.so"
    compiler = ["cc", "-shared", "-fPIC", "-o", str(library), str(HERE / "odd.c"), "-ldl"]
    subprocess.run(compiler, check=True)
    return library


@pytest.mark.parametrize(
    ("refused", "call", "number"),
    [
        ("ODD_FSYNC", "fsync of a folder", errno.EINVAL),
        ("ODD_RENAME", "renaming a folder", errno.ENOSYS),
        ("ODD_NOTHING", None, 0),
    ],
)
def test_a_file_system_that_refuses_a_call_on_folders_is_named(
    tmp_path: Path, odd: Path, refused: str, call: str | None, number: int
) -> None:
    folder = tmp_path / "odd" / "store"
    done = subprocess.run(
        [sys.executable, "-c", TRY, str(folder), str(HERE.parents[1] / "src")],
        env={**os.environ, "LD_PRELOAD": str(odd), refused: "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    said = (
        ""
        if call is None
        else f"{folder} cannot be used: {call} fails there ({os.strerror(number)})\n"
    )
    assert done.stdout == said
    assert names(folder) == []


@pytest.mark.parametrize(
    ("function", "call"),
    [
        ("os.fsync", "fsync of a file"),
        ("os.rename", "renaming a folder"),
        ("os.replace", "replacing a file by another"),
        ("os.pwrite", "a direct write"),
        ("os.listdir", "listing a folder"),
        ("os.unlink", "removing files"),
        ("mmap.mmap", "a direct write"),
        ("shutil.disk_usage", "statvfs"),
    ],
)
def test_each_call_that_fails_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, call: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(function, refuse)
    with pytest.raises(
        Unfit, match=rf"{tmp_path} cannot be used: {call} fails there \(Input/output error\)"
    ):
        try_versions(tmp_path)


def test_a_file_system_without_direct_writes_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "pwrite", refuse)
    try_versions(tmp_path)


def test_a_folder_that_gives_back_other_bytes_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "_mapped", lambda path: b"other")
    with pytest.raises(Unfit, match=r"reading a file fails there .it gives back other bytes"):
        try_files(tmp_path)


def test_what_cannot_be_removed_in_a_folder_is_found_before(tmp_path: Path, busy: Busy) -> None:
    """There old versions would fill the disk."""
    with pytest.raises(Unfit, match="removing files fails there"), trial._room_in(tmp_path) as room:
        busy.hold(room)


def unfit_at(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    def refuse(tried: Path) -> None:
        if tried == folder:
            raise Unfit(folder, "fsync of a folder", OSError(errno.EINVAL, "Invalid argument"))

    monkeypatch.setattr(preflight, "try_versions", refuse)
    monkeypatch.setattr(preflight, "try_files", refuse)
    monkeypatch.setattr(storage, "try_versions", refuse)


@pytest.fixture
def plan(make_plan: MakePlan, tmp_path: Path) -> Plan:
    plan = make_plan("s1")
    strategy = PluginSpec("deepfreeze", (("memory", 1), ("node", 2), ("shared", 4)))
    cell = dataclasses.replace(plan.cell, strategy=strategy, format=FORMAT)
    return dataclasses.replace(
        plan, cell=cell, memory_folder=tmp_path / "shm", node_folder=tmp_path / "disk"
    )


@pytest.mark.parametrize(
    ("of", "remedy"),
    [
        ("run", "have the study in another folder"),
        ("shared", "set checkpoints.folder to another folder"),
        ("node", "set checkpoints.node_folder to another folder, or set node: 0"),
    ],
)
def test_a_run_is_refused_before_its_first_step_in_one_line(
    plan: Plan, execution: Execution, monkeypatch: pytest.MonkeyPatch, of: str, remedy: str
) -> None:
    folders = {
        "run": plan.run_folder,
        "shared": plan.checkpoint_folder,
        "node": open_levels(plan).stores[NODE].folder,
    }
    unfit_at(monkeypatch, folders[of])
    with pytest.raises(
        LaunchError, match=rf"^{folders[of]} cannot .* folder fails .*: .*{remedy}$"
    ):
        run_cell(plan, execution)
    assert not (plan.run_folder / "trace-0.jsonl").exists()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EIO])
def test_a_file_system_without_locks_is_warned_of_and_one_that_fails_refused(
    plan: Plan, execution: Execution, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture, *, number: int,
) -> None:  # fmt: skip
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    environment = plan.run_folder.parent / "environment"
    if number == errno.ENOLCK:
        run_cell(plan, execution)
        with locked(environment):
            pass
        for folder in (plan.run_folder, plan.checkpoint_folder, environment):
            assert f"{folder} is on a file system without locks" in caplog.text
        return
    with pytest.raises(
        LaunchError,
        match=r"run cannot be locked: Input/output error; the storage of .* fails: .*dmesg.*, or have the",
    ):
        run_cell(plan, execution)
    with (
        pytest.raises(EnvironmentSetupError, match="environment cannot be locked"),
        locked(environment),
    ):
        pass


def test_each_node_of_several_checks_its_own(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    preflight.check_node(plan, "b", ranks_here=1, part=1)
    unfit_at(monkeypatch, open_levels(plan, node="b").stores[NODE].folder)
    with pytest.raises(LaunchError, match=r"^on b: .* fsync of a folder fails there .*node: 0$"):
        preflight.check_node(plan, "b", ranks_here=1, part=1)
    monkeypatch.setattr(preflight, "available_memory", lambda: 10**6)
    with pytest.raises(LaunchError, match=r"^on b: 1 ranks of linear need about .* of memory"):
        preflight.check_node(plan, "b", ranks_here=1, part=1)


def test_the_first_rank_of_a_node_checks_before_it_imports_its_framework(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []

    def refuse(_: Plan, node: str, **__: object) -> None:
        checked.append(node)
        raise LaunchError("on b: no room")

    monkeypatch.setattr(preflight, "check_node", refuse)
    monkeypatch.setattr(rank, "load", lambda _: pytest.fail("imported"))
    world = RankContext(
        rank=1, world_size=2, local_rank=0, node="b", threads=1, addresses=("a:1", "b:1"), nodes=("a", "b")
    )  # fmt: skip
    with pytest.raises(LaunchError, match="on b: no room"):
        rank.run_rank(plan, world, Unasked(), started_ns=2)
    assert checked == ["b"]
    assert not (plan.run_folder / "trace-1.jsonl").exists()


def test_no_rank_checks_its_node_in_a_restart_that_is_timed(plan: Plan) -> None:
    world = RankContext(
        rank=1, world_size=2, local_rank=0, node="b", threads=1, addresses=("a:1", "b:1"), nodes=("a", "b")
    )  # fmt: skip
    again = dataclasses.replace(plan, attempt=2)
    killed = dataclasses.replace(
        again, cell=dataclasses.replace(again.cell, faults=PluginSpec("killed_thrice"))
    )
    assert rank._checks_node(again, world, Unasked())
    assert not rank._checks_node(killed, world, Unasked())
    assert not rank._checks_node(plan, dataclasses.replace(world, local_rank=1), Unasked())
    assert not rank._checks_node(plan, dataclasses.replace(world, nodes=("b", "b")), Unasked())


def test_the_audit_names_it_and_measures_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Path) -> None:
        raise Unfit(folder, "fsync of a folder", OSError(errno.EINVAL, "Invalid argument"))

    monkeypatch.setattr(storage, "try_versions", refuse)
    (check,) = machine.audit_machine({}, tmp_path, "0" * 64, Size())
    assert (check.check, check.verdict) == ("files", "fails")
    assert "fsync of a folder fails there (Invalid argument): the file system of" in check.meaning
    assert "or set checkpoints.folder to a folder on another file system" in check.meaning

"""Near levels lie where other users may write too: what they have put there is refused before anything is changed."""

from __future__ import annotations

import dataclasses
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from stored_versions import names, staged, write
from test_levels import interrupted

from ckptbench.checkpointing.levels import open_levels
from ckptbench.checkpointing.state_files import FORMAT
from ckptbench.checkpointing.store import CheckpointStore
from ckptbench.common.errors import CheckpointError, LaunchError
from ckptbench.common.own_folder import ForeignFolder, make_own
from ckptbench.launch.folder_locks import checkpoint_folder_locked
from ckptbench.launch.run import Execution, run_cell
from ckptbench.matrix.levels import MEMORY
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.run.plan import Plan

ANOTHER = 65534


@pytest.fixture
def give_away(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Makes a path another user's, as far as the checks see: only root may really give a file away."""
    foreign: set[tuple[int, int]] = set()
    lstat = Path.lstat

    def seen(status: os.stat_result) -> os.stat_result:
        if (status.st_dev, status.st_ino) not in foreign:
            return status
        fields = list(status)
        fields[stat.ST_UID] = ANOTHER
        return os.stat_result(fields)

    monkeypatch.setattr(Path, "lstat", lambda path: seen(lstat(path)))

    def give(path: Path) -> None:
        status = lstat(path)
        foreign.add((status.st_dev, status.st_ino))
        if os.geteuid() == 0:
            os.chown(path, ANOTHER, ANOTHER, follow_symlinks=False)

    return give


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder in which all users may make what they like, as /dev/shm."""
    (folder := tmp_path / "shm").mkdir()
    folder.chmod(0o1777)
    return folder


@pytest.fixture
def plan(make_plan: Callable[..., Plan], shared: Path) -> Plan:
    plan = make_plan("s1")
    strategy = PluginSpec("deepfreeze", (("memory", 1), ("shared", 4)))
    cell = dataclasses.replace(plan.cell, strategy=strategy, format=FORMAT)
    return dataclasses.replace(plan, cell=cell, memory_folder=shared)


def test_folders_are_made_for_this_user_alone(shared: Path) -> None:
    (
        make_own(shared / "deep" / "base", "own", "run"),
        make_own(shared / "deep" / "base", "own", "run"),
    )
    for folder in ("own", "own/run"):
        assert (shared / "deep" / "base" / folder).stat().st_mode & 0o777 == 0o700


def test_links_that_no_other_user_has_made_are_followed(tmp_path: Path, shared: Path) -> None:
    for name, target in (("whole", str(shared)), ("relative", "shm")):
        (tmp_path / name).symlink_to(target)
    make_own(tmp_path / "whole" / "base", "a")
    make_own(tmp_path / "relative" / "base", "b")
    assert names(shared / "base") == ["a", "b"]


@pytest.mark.parametrize("component", ["base", "own", "run"])
@pytest.mark.parametrize("kind", ["folder", "link"])
def test_what_another_user_has_made_is_refused_and_stays_as_it_is(
    tmp_path: Path, shared: Path, give_away: Callable[[Path], None], component: str, kind: str
) -> None:
    parts = ("base", "own", "run")
    path = shared.joinpath(*parts[: parts.index(component) + 1])
    path.parent.mkdir(parents=True, exist_ok=True)
    (victim := tmp_path / "victim").mkdir()
    (victim / "version-00000001.partial").write_text("precious")
    if kind == "link":
        path.symlink_to(victim)
    else:
        path.mkdir()
    give_away(path)
    with pytest.raises(ForeignFolder, match=rf"{path} is .* belongs to another user, \w+"):
        make_own(shared / "base", "own", "run")
    assert names(victim) == ["version-00000001.partial"]
    assert kind == "link" or names(path) == []


def test_an_own_folder_in_which_others_may_write_is_refused(shared: Path) -> None:
    (own := shared / "own").mkdir()
    own.chmod(0o777)
    with pytest.raises(ForeignFolder, match="own can be written by other users"):
        make_own(shared, "own", "run")
    own.chmod(0o755)
    make_own(shared, "own", "run")
    assert own.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("component", ["own", "run"])
def test_a_run_changes_nothing_where_another_users_link_leads(
    plan: Plan, execution: Execution, tmp_path: Path, give_away: Callable[[Path], None],
    monkeypatch: pytest.MonkeyPatch, *, resume: bool, component: str,
) -> None:  # fmt: skip
    """Neither where it begins nor where it goes on: there it would have removed, renamed and read versions."""
    interrupted(plan, execution, monkeypatch, steps=6)
    near = open_levels(plan).stores[MEMORY].folder
    path = near if component == "run" else near.parent
    path.rename(tmp_path / "before")
    victim = tmp_path / "victim" if component == "run" else tmp_path / "victim" / near.name
    write(store := CheckpointStore(victim, keep=1), 9)
    staged(store, 10)
    (victim / "version-00000011").mkdir()  # damaged
    before = names(victim)
    path.symlink_to(tmp_path / "victim")
    give_away(path)
    refused = rf"^{path} is a link and belongs to another user, .* checkpoints\.memory_folder .*memory: 0$"
    with pytest.raises(CheckpointError, match=refused):
        run_cell(plan, dataclasses.replace(execution, resume=resume))
    assert names(victim) == before


@pytest.mark.parametrize("kind", ["folder", "link", "lock"])
def test_a_checkpoint_folder_that_another_user_has_made_where_all_may_is_refused(
    tmp_path: Path, shared: Path, give_away: Callable[[Path], None], kind: str
) -> None:
    folder, victim = shared / "cell" / "checkpoints", tmp_path / "victim"
    victim.mkdir()
    (victim / "precious").write_text("precious")
    if kind == "lock":
        folder.mkdir(parents=True)
        (folder / ".lock").symlink_to(victim / "precious")
    elif kind == "link":
        folder.parent.symlink_to(victim)
        give_away(folder.parent)
    else:
        folder.parent.mkdir()
        give_away(folder.parent)
    with (
        pytest.raises(LaunchError, match=r"set checkpoints\.folder to another folder") as refused,
        checkpoint_folder_locked(folder, run_folder=tmp_path / "run"),
    ):
        pass
    assert "\n" not in str(refused.value)
    assert (victim / "precious").read_text() == "precious"

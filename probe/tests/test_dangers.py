"""Dangers that are told only where a trace shows them."""

from __future__ import annotations

from pathlib import Path

import pytest
from traces import Written, at

from ckptbench_probe.dangers import dangers
from ckptbench_probe.measures import measure
from ckptbench_probe.reading import read


@pytest.mark.parametrize("killed", [True, False])
def test_a_folder_of_trainer_that_a_kill_left_half_written_is_named(
    tmp_path: Path, killed: bool
) -> None:
    rank = Written().updates(1, 2).save(2.0, 2.1, after=2, path="/c/checkpoint-2", kind="transformers").updates(3, 4)  # fmt: skip
    rank.save(4.0, None if killed else 4.1, after=4, path="/c/checkpoint-4", kind="transformers")
    if not killed:
        rank.ended(5.0)
    run = read(rank.into(tmp_path))
    measures = measure(run)
    (told,) = (line for line in dangers(run, measures) if "get_last_checkpoint" in line)
    assert told.startswith("/c/checkpoint-4 is half written") is killed
    assert told.startswith("Trainer takes a half-written checkpoint folder") is not killed
    assert measures.stall is not None
    assert measures.stall.number == (
        1 if killed else 2
    )  # of a save that was cut off it is not known


def _told_in_place(rank: Written, folder: Path) -> list[str]:
    run = read(rank.into(folder))
    return [line for line in dangers(run, measure(run)) if "in place" in line]


def _saving(*paths: str) -> Written:
    """A save every two seconds."""
    rank = Written().updates(1, 2)
    for number, path in enumerate(paths, 1):
        rank.save(2.0 * number, 2.0 * number + 0.5, after=number, path=path)
        rank.updates(2.0 * number + 1)
    return rank


def test_the_only_checkpoint_that_is_overwritten_in_place_is_told(tmp_path: Path) -> None:
    (line,) = _told_in_place(_saving("/c/ckpt.pt", "/c/ckpt.pt", "/c/ckpt.pt"), tmp_path)
    assert line == (
        "2 times the only whole checkpoint was overwritten in place (ckpt.pt): a kill at that moment leaves none."
        " Save under another name, and rename it by os.replace when it is whole"
    )


def test_an_overwrite_that_a_kill_has_cut_off_is_told(tmp_path: Path) -> None:
    rank = _saving("/c/ckpt.pt").save(4.0, None, after=2, path="/c/ckpt.pt")
    assert len(_told_in_place(rank, tmp_path)) == 1


@pytest.mark.parametrize(
    "paths",
    [
        ("/c/one.pt", "/c/two.pt", "/c/one.pt", "/c/two.pt"),
        ("/c/step-1.pt", "/c/step-2.pt", "/c/step-3.pt"),
        ("/c/ckpt.pt",),
    ],
)
def test_alternating_and_numbered_files_are_not_in_place(
    paths: tuple[str, ...], tmp_path: Path
) -> None:
    assert not _told_in_place(_saving(*paths), tmp_path)


@pytest.mark.parametrize("seconds", [2.4, 2.6])
def test_a_file_that_is_renamed_once_it_is_whole_is_not_in_place(
    seconds: float, tmp_path: Path
) -> None:
    """By the engine, inside the save, or by the program after it."""
    by_engine = seconds < 2.5
    rank = _saving(*["/c/ckpt.pt" if by_engine else "/c/ckpt.tmp"] * 3)
    for number in range(3):
        at_ns = at(seconds + 2.0 * number)
        source = None if by_engine else "/c/ckpt.tmp"
        rank.add("moved", at_ns=at_ns, path="/c/ckpt.pt", source=source, size=1)
    assert not _told_in_place(rank, tmp_path)


def test_a_copy_that_is_left_meanwhile_is_a_checkpoint_until_it_is_removed(tmp_path: Path) -> None:
    rank = _saving(*["/c/ckpt.pt"] * 4)
    rank.add("duplicated", at_ns=at(2.6), path="/c/best.pt", source="/c/ckpt.pt")
    rank.add("removed", at_ns=at(7.0), path="/c/best.pt")
    (line,) = _told_in_place(rank, tmp_path)
    assert line.startswith("1 times")


def _told_of_pointers(rank: Written, folder: Path) -> list[str]:
    run = read(rank.into(folder))
    return [line for line in dangers(run, measure(run)) if "was moved to an un" in line]


def _two_in_the_background() -> Written:
    """Each is finished nearly a second after its call has returned: at 3.1 and at 7.1."""
    rank = Written().updates(1, 2).save(2.0, 2.1, finished=3.1, after=2, path="/c/step-2")
    rank.updates(3, 4, 5, 6).save(6.2, 6.3, finished=7.1, after=6, path="/c/step-6")
    return rank.updates(7, 8)


POINTED = [
    ("linked", {"to": "step-6"}),
    ("linked", {"to": "/c/step-6"}),
    ("moved", {"source": "/c/latest.new", "size": 6, "to": "step-6"}),
    ("moved", {"source": "/c/latest.new", "size": 20, "to": '{"newest": "step-6"}'}),
    ("pointed", {"to": "6"}),
]


@pytest.mark.parametrize(("event", "fields"), POINTED)
@pytest.mark.parametrize(("seconds", "early"), [(5.5, True), (6.5, True), (7.5, False)])
def test_a_pointer_that_is_moved_before_its_checkpoint_is_finished_is_told(
    event: str, fields: dict[str, object], seconds: float, early: bool, tmp_path: Path
) -> None:
    rank = _two_in_the_background().add(event, at_ns=at(seconds), path="/c/latest", **fields)
    lines = _told_of_pointers(rank, tmp_path)
    assert [line.startswith("1 times latest was moved") for line in lines] == [True] * early


@pytest.mark.parametrize(
    ("event", "path", "fields"),
    [
        ("linked", "/c/latest", {"to": "step-2"}),  # the one before, which is whole
        ("pointed", "/c/latest", {"to": "2"}),
        ("linked", "/c/data", {"to": "../data"}),  # something else
        ("pointer", "/c/latest", {}),  # what it says is not known
        ("moved", "/c/step-6/.metadata", {"source": "/c/step-6/.metadata.tmp", "size": 9, "to": "step-6"}),
        ("linked", "/c/latest.new", {"to": "step-6"}),  # which is moved when the save is finished
    ],
)  # fmt: skip
def test_other_links_and_files_are_not_told(
    event: str, path: str, fields: dict[str, object], tmp_path: Path
) -> None:
    rank = _two_in_the_background().add(event, at_ns=at(6.5), path=path, **fields)
    rank.add("moved", at_ns=at(7.5), path="/c/latest", source="/c/latest.new", size=6, to="step-6")
    assert not _told_of_pointers(rank, tmp_path)


def test_a_pointer_to_a_save_that_failed_is_told(tmp_path: Path) -> None:
    rank = _two_in_the_background()
    rank.events[-2]["failed"] = True
    rank.add("linked", at_ns=at(7.5), path="/c/latest", to="step-6")
    assert len(_told_of_pointers(rank, tmp_path)) == 1
    run = read(tmp_path)
    told = dangers(run, measure(run))
    assert told[0] == "1 of 2 checkpoints failed (step-6): do not resume from it"


@pytest.mark.parametrize(("seconds", "times"), [(5.5, 0), (6.1, 1), (6.5, 1), (7.5, 0), (9.0, 0)])
def test_an_older_checkpoint_that_is_removed_before_the_next_is_whole_is_told(
    seconds: float, times: int, tmp_path: Path
) -> None:
    """Right before the next begins, or beside it: not while steps follow, once that is finished, nor at the end of the training."""
    rank = _two_in_the_background().add("removed", at_ns=at(seconds), path="/c/step-2")
    if seconds == 9.0:
        rank.add("removed", at_ns=at(9.1), path="/c/step-6")
    run = read(rank.into(tmp_path))
    found = [line for line in dangers(run, measure(run)) if "meanwhile the disk had none" in line]
    assert [line[:7] for line in found] == ["1 times"] * times


def test_a_checkpoint_that_is_removed_before_the_last_save_is_told(tmp_path: Path) -> None:
    """No step follows it."""
    rank = Written().updates(1, 2).save(2.0, 2.5, after=2, path="/c/step-2").updates(3, 4)
    rank.add("removed", at_ns=at(4.1), path="/c/step-2").save(4.2, 4.5, after=4, path="/c/step-4")
    run = read(rank.into(tmp_path))
    assert any("meanwhile the disk had none" in line for line in dangers(run, measure(run)))


@pytest.mark.parametrize("draft", ["/c/step-2.tmp", "/c/draft"])
@pytest.mark.parametrize(("seconds", "early"), [(1.5, True), (2.55, True), (2.7, False)])
def test_a_checkpoint_may_be_pointed_to_once_it_has_its_name(
    draft: str, seconds: float, early: bool, tmp_path: Path
) -> None:
    rank = Written().updates(1, 2).save(2.0, 2.5, after=2, path=draft)
    rank.add("moved", at_ns=at(2.6), path="/c/step-2", source=draft, size=9, to=None)
    rank.add("pointed", at_ns=at(seconds), path="/c/latest", to="step-2").updates(3, 4)
    assert len(_told_of_pointers(rank, tmp_path)) == early


@pytest.mark.parametrize(("seconds", "early"), [(2.3, True), (2.9, False), (5.0, False)])
def test_a_pointer_to_a_folder_of_several_files_waits_for_all_of_the_newest_update(
    seconds: float, early: bool, tmp_path: Path
) -> None:
    """Later files in it do not count, nor older ones that are gone."""
    rank = Written().updates(1).save(1.0, 1.1, after=1, path="/c/run/old.pt").updates(2)
    rank.add("removed", at_ns=at(1.5), path="/c/run/old.pt")
    rank.save(2.0, 2.1, after=2, path="/c/run/model.pt")
    rank.save(2.2, 2.8, after=2, path="/c/run/slots.pt", stepping=False).updates(3, 4, 5, 6)
    rank.save(6.0, 6.1, after=6, path="/c/run/model-6.pt").updates(7)
    rank.add("linked", at_ns=at(seconds), path="/c/latest", to="run")
    assert len(_told_of_pointers(rank, tmp_path)) == early


@pytest.mark.parametrize(
    ("kind", "path", "seconds", "told"),
    [
        ("torch.save", "/c/step-2.pt", 2.6, False),
        ("torch.save", "/c/step-2.pt", 2.8, True),  # after the pointer
        ("torch.save", "/c/other.pt", 2.6, True),
        ("torch.save", "/c/step-2.tmp", 2.55, False),  # and then renamed
        ("dcp.async_save", "/c/step-2.pt/__0_0.distcp", 2.3, False),
        ("dcp.async_save", "/c/step-2.pt/__0_0.distcp", 2.8, True),
        ("orbax", "/c/other.pt", 2.6, False),  # it syncs in C++
    ],
)
def test_a_pointer_that_is_moved_before_its_checkpoint_is_synced_is_told(
    kind: str, path: str, seconds: float, told: bool, tmp_path: Path
) -> None:
    own = path if path.endswith(".tmp") else "/c/step-2.pt"
    rank = Written().updates(1, 2).save(2.0, 2.5, after=2, path=own, kind=kind)
    rank.add("synced", at_ns=at(seconds), begun_ns=at(seconds), path=path, size=9)
    if own == path:
        rank.add("moved", at_ns=at(2.6), path="/c/step-2.pt", source=path, size=9, to=None)
    rank.add("pointed", at_ns=at(2.7), path="/c/latest", to="step-2.pt").updates(3, 4)
    lines = _told_of_pointers(rank, tmp_path)
    assert [line.startswith("1 times latest was moved to an unsynced checkpoint: ") for line in lines] == [True] * told  # fmt: skip

"""Verdicts of `check saves`, without a framework: what a file is compared with, how threads are held, and what is told."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from traces import Written, at

from ckptbench_probe.check import gate as gates
from ckptbench_probe.check import orbax, saves
from ckptbench_probe.check.checkpoints import checkpoints, ranks
from ckptbench_probe.check.gate import AFTER_S, LONGEST_GAPS, Gate
from ckptbench_probe.check.given import CHECKER
from ckptbench_probe.check.history import Snapshot
from ckptbench_probe.check.judging import OVERWRITTEN, judge
from ckptbench_probe.check.state import digest


def after(update: int, **values: str) -> Snapshot:
    """Each name has a value."""
    names: dict[str, set[str]] = {}
    for name, value in values.items():
        names.setdefault(value, set()).add(name)
    return Snapshot(update, {value: frozenset(names) for value, names in names.items()})


HISTORY = [after(n, weight=f"w{n}", moment=f"m{n}") for n in range(1, 8)]


def test_a_file_with_what_the_save_was_given_is_whole() -> None:
    given = {"a.weight": "w5", "b.moment": "m5", "step": "?"}
    found = judge(given, given, HISTORY)
    assert (found.compared, found.torn, found.updates, found.several) == (3, (), (5,), {})


def test_a_torn_file_names_its_tensors_and_their_update() -> None:
    given = {"a.weight": "w5", "b.moment": "m5", "step": "5"}
    found = judge(given, {**given, "a.weight": "w6", "step": "6"}, HISTORY)
    assert (found.torn, found.torn_of) == (("a.weight", "step"), {"6": 1})


def test_a_tensor_torn_within_is_of_no_update() -> None:
    given = {"a.weight": "w5", "b.moment": "m5"}
    found = judge(given, {"a.weight": "w6", "b.moment": "half m5, half m6"}, HISTORY)
    assert found.torn_of == {"6": 1, "mixed": 1}


def test_parts_of_two_updates_are_torn_though_the_save_was_given_them() -> None:
    given = {"a.weight": "w5", "b.moment": "m6"}
    assert judge(given, given, HISTORY).several == {"5": 1, "6": 1}


def test_an_older_copy_beside_the_newer_value_is_whole() -> None:
    """As a target network, or an average that began as a copy."""
    given = {"a.weight": "w7", "target.weight": "w2", "b.moment": "m7"}
    found = judge(given, given, HISTORY)
    assert (found.updates, found.several) == ((7,), {})


def test_equal_values_of_different_tensors_are_no_sign_of_tearing() -> None:
    history = [after(1, first="x", second="y"), after(2, first="z", second="x")]
    found = judge({"second": "x"}, {"second": "x"}, history)
    assert (found.torn, found.several) == ((), {})
    assert 2 in found.updates


def test_values_of_no_update_are_compared_with_what_the_save_was_given() -> None:
    found = judge({"half": "h"}, {"half": "h"}, HISTORY)
    assert (found.compared, found.updates, found.torn) == (1, (), ())


def test_what_only_one_side_has_is_not_compared() -> None:
    assert judge({"a": "1", "b": "2"}, {"a": "1", "c": "3"}, []).compared == 1


# Threads


class Running:
    """A call in a thread, and how long it took."""

    def __init__(self, call: Any, *args: Any) -> None:
        self.took_s = 0.0
        self._thread = threading.Thread(target=self._run, args=(call, args), daemon=True)
        self._thread.start()

    def _run(self, call: Any, args: Any) -> None:
        begun = time.monotonic()
        call(*args)
        self.took_s = time.monotonic() - begun

    @property
    def runs(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> None:
        self._thread.join(30)
        assert not self.runs


def busy(seconds: float) -> None:
    """Without a wait that looks like one for the save."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        time.sleep(0.01)


def test_a_held_write_goes_on_once_a_later_save_has_returned() -> None:
    gate = Gate()
    held = Running(gate.hold, 1)
    busy(0.3)
    gate.returned(1)
    busy(0.3)
    assert held.runs
    gate.returned(2)
    held.end()


def test_a_held_write_goes_on_some_time_after_a_step() -> None:
    gate = Gate()
    held = Running(gate.hold, 1)
    gate.before_step()
    gate.after_step()
    busy(AFTER_S + 0.5)
    held.end()
    assert held.took_s >= AFTER_S


def test_a_held_write_goes_on_at_once_where_training_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing else would end it: neither a later save nor the time."""
    monkeypatch.setattr(gates, "LONGEST_HOLD_S", 1e6)
    gate = Gate()
    held = Running(gate.hold, 1, 1e6)
    gate.before_step()
    gate.after_step()
    held.end()


def test_holds_that_training_waits_for_do_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may ask again and again whether its thread has ended, which looks like work."""
    monkeypatch.setattr(gates, "LONGEST_HOLD_S", 0.5)
    gate = Gate()
    for _ in range(4):
        held = Running(gate.hold, 1, 1e6)
        while held.runs:
            busy(0.05)
        gate.before_step()
        gate.after_step()
    assert held.took_s < 0.5 * LONGEST_GAPS**2  # of which it took as much, and more


def test_a_step_waits_for_those_that_read_the_state() -> None:
    gate, order = Gate(), []
    reading = threading.Event()

    def read() -> None:
        with gate.quiet() as reached:
            assert reached
            reading.set()
            time.sleep(0.2)
            order.append("read")

    reader = Running(read)
    assert reading.wait(10)
    gate.before_step()
    order.append("step")
    gate.after_step()
    reader.end()
    assert order == ["read", "step"]


def test_a_step_that_has_raised_does_not_hold_up_the_next_reader() -> None:
    gate = Gate()
    gate.before_step()  # and no after_step
    reached: list[bool] = []

    def read() -> None:
        with gate.quiet() as found:
            reached.append(found)

    Running(read).end()
    assert reached == [True]


def test_a_step_after_one_that_has_raised_is_no_part_of_it() -> None:
    gate = Gate()
    assert gate.before_step()  # and no after_step
    assert gate.before_step()
    gate.after_step()
    reader = Running(gate.hold, 1)
    assert gate.before_step()
    gate.after_step()
    reader.end()


# What is told


def rank(number: int = 0, ranks: int = 1) -> Written:
    return Written(rank=number, ranks=ranks, pid=100 + number).updates(1, 2, 3, 4, 5, 6)


def given(one: Written, save: int, update: int, path: str, checkpoint: str | None = None) -> None:
    one.add(
        "given",
        save=save,
        kind="torch.save",
        path=path,
        checkpoint=checkpoint or path,
        update=update,
        done=update,
    )


def found(one: Written, save: int, update: int, **fields: Any) -> None:
    whole = {"compared": 4, "values": 0, "torn": [], "torn_number": 0, "torn_of": {}, "updates": [update], "several": {}, "as_given": True, "at_begin": False, "not_compared": 0, "left": []}  # fmt: skip
    one.add("checked", **{"save": save, "update_given": update, "done": update, **whole, **fields})


def told(
    folder: Path, capfd: pytest.CaptureFixture[str], *traces: Written, code: int = 0
) -> tuple[int, list[str]]:
    for one in traces:
        one.into(folder / "run")
    result = saves.tell(folder, "run", code, begun=0.0)
    lines = capfd.readouterr().err.splitlines()
    assert json.loads((folder / "saves.json").read_text())["exit_code"] == result
    return result, [line.removeprefix("ckptbench-probe: ") for line in lines]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path


def test_whole_files_are_sound_under_their_last_name(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    one = rank()
    for save, update in ((1, 2), (2, 4)):
        given(one, save, update, "/c/new.pt")
        found(one, save, update)
        one.add("moved", at_ns=1, path=f"/c/step-{update}.pt", source="/c/new.pt", size=1)
    code, lines = told(folder, capfd, one)
    assert code == 0
    assert lines == [
        "verdict       sound: all 2 checkpoints are whole",
        "whole         of update 2, 4",
        "compared      8 tensors",
    ]
    names = [one.path for one in checkpoints(ranks(folder / "run", "run"))]
    assert names == ["/c/step-2.pt", "/c/step-4.pt"]


@pytest.mark.parametrize(
    ("finished", "synced", "pointer"),
    [
        (3.5, None, "finished"),
        (2.5, None, ""),
        (2.5, 3.5, "synced"),
        (2.5, 2.4, ""),
    ],
)
def test_a_pointer_that_is_moved_too_early_is_told(
    finished: float, synced: float | None, pointer: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    one = rank().save(2.1, 2.2, finished=finished, after=2, path="/c/step-2.pt")
    given(one, 1, 2, "/c/step-2.pt")
    found(one, 1, 2)
    one.add("linked", at_ns=at(3.0), path="/c/latest", to="step-2.pt")
    if synced is not None:
        one.add("synced", at_ns=at(synced), begun_ns=at(synced), path="/c/step-2.pt", size=9)
    result, lines = told(folder, capfd, one)
    early = pointer == "finished"
    assert result == (4 if early else 0)
    assert lines[0].startswith("verdict       pointed too early: " if early else "verdict       sound: ")  # fmt: skip
    shown = [line.partition(": ")[0] for line in lines if line.startswith("pointer")]
    assert shown == ([f"pointer       1 times latest was moved to an un{pointer} checkpoint"] if pointer else [])  # fmt: skip


def test_one_torn_part_of_one_rank_makes_the_checkpoint_torn(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second = rank(0, 2), rank(1, 2)
    for one in (first, second):
        given(one, 1, 5, "/c/step-5")
    found(first, 1, 5)
    found(second, 1, 5, torn=["model.w"], torn_number=1, torn_of={"6": 1})
    code, lines = told(folder, capfd, first, second)
    assert code == 1
    assert lines[:2] == [
        "verdict       TORN: 1 of 1 checkpoint is not the state of one update",
        "torn          step-5: 1 of 8 tensors are not those passed to the save (model.w): of update 6 instead of 5",
    ]


def test_files_of_one_checkpoint_must_be_of_one_update(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    one = rank()
    for save, updates in ((1, [4, 5]), (2, [5]), (3, [6])):
        given(one, save, 5, f"/c/checkpoint-5/{save}.pt", "/c/checkpoint-5")
        found(one, save, 5, updates=updates)
    code, lines = told(folder, capfd, one)
    assert code == 3
    assert lines[1] == (
        "mixed         checkpoint-5: the save received tensors of several updates: 1 of update 5 and 1 of update 6"
    )


@pytest.mark.parametrize("ends", ["never", "failed", "empty", "unknown engine"])
def test_what_could_not_be_compared_is_never_sound(
    ends: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    one = rank()
    given(one, 1, 2, "/c/step-2.pt")
    found(one, 1, 2)
    if ends == "unknown engine":
        one.save(5, 6, after=4, path="/c/step-4.pt", kind="orbax")
    else:
        given(one, 2, 4, "/c/step-4.pt")
    if ends == "failed":
        one.add(
            "checked", save=2, update_given=4, done=4, trouble="the save has failed (OSError: full)"
        )
    if ends == "empty":
        found(one, 2, 4, compared=0, updates=[])
    code, lines = told(folder, capfd, one)
    reason = {
        "never": "its engine has not said that it was finished",
        "failed": "the save has failed (OSError: full)",
        "empty": "it has no tensor that can be compared",
        "unknown engine": "files of orbax cannot be compared",
    }[ends]
    assert code == 2
    assert lines[:2] == [
        "verdict       cannot tell: 1 of 2 checkpoints could not be compared",
        f"cannot tell   step-4.pt: {reason}",
    ]


def test_a_command_that_has_failed_is_not_sound(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    one = rank()
    given(one, 1, 2, "/c/step-2.pt")
    found(one, 1, 2)
    code, lines = told(folder, capfd, one, code=7)
    assert code == 2
    assert lines[0].endswith("what was saved is whole, but the command has ended with exit code 7")


def test_a_run_without_saves_or_ranks_is_not_sound(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, lines = told(folder, capfd)
    assert (code, lines[0].split(":")[0]) == (2, "no rank reported")
    code, lines = told(folder, capfd, rank())
    assert (code, len(lines)) == (2, 1)
    assert "nothing was saved by an engine that the probe knows" in lines[0]


def test_a_process_that_updates_nothing_does_not_count(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Such as the one that DCP starts to write."""
    helper = Written(pid=900)
    given(helper, 1, 0, "/c/step-2")
    one = rank()
    given(one, 1, 2, "/c/step-2")
    found(one, 1, 2)
    assert told(folder, capfd, helper, one)[0] == 0


def test_what_a_process_saves_that_does_not_train_is_never_sound(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It may have got the training's own memory, as by a queue of torch.multiprocessing."""
    writer = Written(pid=900).save(1, 2, path="/c/step-2.pt")
    one = rank()
    given(one, 1, 6, "/c/final.pt")
    found(one, 1, 6)
    code, lines = told(folder, capfd, writer, one)
    assert code == 2
    assert lines[:2] == [
        "verdict       cannot tell: 1 of 2 checkpoints could not be compared",
        "cannot tell   step-2.pt: a process that does not train has saved it, and training may go on meanwhile: it cannot be compared",
    ]


def test_what_was_mixed_as_given_is_not_torn(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As the weights of the best update beside the newest optimizer."""
    one = rank()
    given(one, 1, 2, "/c/step-2.pt")
    found(one, 1, 2)
    given(one, 2, 4, "/c/step-4.pt")
    found(one, 2, 4, updates=[], several={"2": 3, "4": 6})
    code, lines = told(folder, capfd, one)
    assert code == 3
    assert lines[:2] == [
        "verdict       mixed as given: 1 of 2 checkpoints has tensors of several updates, but nothing tore: the program passed them to the save",
        "mixed         step-4.pt: the save received tensors of several updates: 3 of update 2 and 6 of update 4",
    ]


def test_what_a_thread_has_mixed_is_torn(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It has copied the state while training went on."""
    one = rank()
    given(one, 1, 4, "/c/step-4.pt")
    found(one, 1, 4, updates=[], several={"4": 3, "5": 6}, as_given=False)
    code, lines = told(folder, capfd, one)
    assert code == 1
    assert "its tensors are of several updates: 3 of update 4 and 6 of update 5" in lines[1]


@pytest.mark.parametrize(("code", "torn"), [(2, False), (1, True)])
def test_a_part_of_the_check_that_failed_is_told(
    code: int, torn: bool, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    one = rank()
    given(one, 1, 2, "/c/step-2.pt")
    found(one, 1, 2, **({"torn": ["w"], "torn_number": 1, "updates": []} if torn else {}))
    one.add("trouble", reason="before_step: CheckpointException: rank 0")
    result, lines = told(folder, capfd, one)
    assert result == code
    assert torn or lines[0] == "verdict       cannot tell: the check itself has failed in part"
    line = "cannot tell   a part of the check is missing (before_step: CheckpointException: rank 0)"
    assert line in lines


def test_what_was_not_compared_is_named(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    one = rank()
    given(one, 1, 2, "/c/step-2.pt")
    found(one, 1, 2, values=3, not_compared=5, left=["by (Author)", "sampler (Sampler)"])
    code, lines = told(folder, capfd, one)
    assert code == 0
    assert lines[-1] == "compared      4 tensors and 3 other values; not compared: by (Author), sampler (Sampler), ... (5 in all)"  # fmt: skip


def test_a_path_that_is_saved_to_again_and_again_has_a_checkpoint_each_time(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A thread writes copies, later than they were made: all after the last update."""
    one = rank()
    for save, update in ((1, 2), (2, 4), (3, 6)):
        given(one, save, 6, "/c/last.pt")
        found(one, save, 6, updates=[update], at_begin=True)
    code, lines = told(folder, capfd, one)
    assert code == 0
    assert lines[:2] == ["verdict       sound: all 3 checkpoints are whole", "whole         of update 2, 4, 6"]  # fmt: skip


def test_files_between_two_updates_are_one_checkpoint_by_the_name_of_their_folder(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    one = rank()
    for update in (2, 4):
        for part in (1, 2, 3):
            given(one, 10 * update + part, update, f"/c/step-{update}.part/{part}.pt")
            found(one, 10 * update + part, update)
        one.add("moved", at_ns=1, path=f"/c/step-{update}", source=f"/c/step-{update}.part", size=1)
    code, lines = told(folder, capfd, one)
    assert (code, lines[0]) == (0, "verdict       sound: all 2 checkpoints are whole, of 3 files each")  # fmt: skip
    rows = checkpoints(ranks(folder / "run", "run"))
    assert [[save.path for save in row.saves] for row in rows] == [["/c/step-2"], ["/c/step-4"]]


def test_a_file_that_no_engine_wrote_beside_a_checkpoint_is_not_called_whole(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    one = rank()
    (output := folder / "step-2").mkdir()
    for name in ("opt.pt", "weights.npz"):
        (output / name).write_bytes(b"\0")
    (output / "settings.json").write_text("{}")
    given(one, 1, 2, str(output / "opt.pt"))
    found(one, 1, 2)
    code, lines = told(folder, capfd, one)
    assert (code, lines[0]) == (0, "verdict       sound in what was compared, which was not every file: 1 checkpoint")  # fmt: skip
    assert lines[-1] == "not compared  step-2/weights.npz: no engine that is known wrote them"


def test_ranks_that_count_their_updates_otherwise_have_the_same_checkpoints(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As of two trainings in one process."""
    first, second = rank(0, 2), rank(1, 2)
    for one, done in ((first, 2), (second, 3)):
        given(one, 1, 2, "/c/step-2")
        found(one, 1, 2, done=done)
    code, lines = told(folder, capfd, first, second)
    assert (code, lines[0]) == (0, "verdict       sound: the only checkpoint is whole")


def test_a_file_that_another_save_has_overwritten_is_not_torn() -> None:
    first, second = (CHECKER.begin("torch.save", "/c/last.pt") for _ in range(2))
    assert first is not None
    assert second is not None
    first.digests, second.digests = ({("w",): digest(n)} for n in (1, 2))
    assert CHECKER._compare(first, lambda _: [(("w",), 2)]) == OVERWRITTEN
    mixed = CHECKER._compare(first, lambda _: [(("w",), 3)])
    assert not isinstance(mixed, str)
    assert mixed.torn == (("w",),)
    whole = CHECKER._compare(second, lambda _: [(("w",), 2)])
    assert not isinstance(whole, str)
    assert whole.torn == ()


def test_without_a_command_there_is_no_check(capfd: pytest.CaptureFixture[str]) -> None:
    from ckptbench_probe.main import main

    with pytest.raises(SystemExit) as ended:
        main(["check", "saves"])
    assert ended.value.code == 2
    assert "no command: write it after --" in capfd.readouterr().err


def test_a_save_of_orbax_that_has_failed_takes_no_end_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed, other = (CHECKER.begin("orbax", f"/c/{step}") for step in (1, 2))
    CHECKER.failed(failed, OSError("full"))
    ended: list[Any] = []
    monkeypatch.setattr(CHECKER, "written", lambda given, read: ended.append(given))
    orbax._UNDER_WAY.extend([failed, other])
    orbax._hear(orbax.SUCCESS)
    assert ended == [other]
    assert not orbax._UNDER_WAY

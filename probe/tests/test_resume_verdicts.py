"""What `check resume` makes of the states of three runs: no training runs here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ckptbench_probe.check.alignment import resumed_from
from ckptbench_probe.check.extent import unread
from ckptbench_probe.check.seen import Seen
from ckptbench_probe.check.states import Rank, State, paths, saves
from ckptbench_probe.check.verdict import Verdict, judge

WHOLE, KILL_AT, START = 8, 5, 3


def state(update: int, step: int | None = None, **more: Any) -> State:
    own = State(step, {"w": f"w{update}", "w/m": f"m{update}"}, {"torch": f"r{update}"}, (0.1,))
    return replace(own, done=update, backwards=update, ends={False}, **more)


def run(updates: range, **more: Any) -> Rank:
    """The same training in each run. `updates`: those that it makes."""
    begin = replace(state(updates.start - 1), ends=set(), **more)
    after = {n - updates.start + 1: state(n, n, **more) for n in updates}
    for own, one in after.items():
        after[own] = replace(one, done=own, backwards=own)
    return Rank(begin if updates.start == 1 else replace(begin, step=updates.start - 1), after, 1)


def runs(**more: Any) -> tuple[Rank, Rank, Rank]:
    return (
        run(range(1, WHOLE + 1), **more),
        run(range(1, KILL_AT + 1), **more),
        run(range(START + 1, WHOLE + 1), **more),
    )


def beside(rank: Rank, values: dict[int, dict[str, str]], start: int = 0) -> None:
    """By update: what lives beside the model, each name with one or more digests."""
    for update, named in values.items():
        own = rank.at(update - start)
        if own is not None:
            own.beside.update({name: tuple(one.split()) for name, one in named.items()})


def judged(whole: Rank, killed: Rank, again: Rank, **more: Any) -> Verdict:
    known: dict[str, Any] = {"whole_ended": True, "again_ended": True, **more}
    saved = {START: True}
    return judge(
        Seen({0: whole}, {0: killed}, {0: again}, KILL_AT, saved, None, lambda: {0: whole}, **known)
    )


def average(values: str) -> dict[int, dict[str, str]]:
    """One letter an update, from the begin on: `.` where it was not seen."""
    return {n: {"average.0": one} for n, one in enumerate(values) if one != "."}


@pytest.mark.parametrize(
    ("again", "code", "reason"),
    [
        ("...defghi", 0, ""),
        ("...xyzuvs", 1, "already different at the resume: average.0"),
        ("...dyzuvs", 1, "or what decides how it is updated, as its count: average.0"),
        ("...dddddd", 1, "or what decides how it is updated, as its count: average.0"),
    ],
    ids=["kept", "lost", "count lost", "no longer updated"],
)
def test_an_average_beside_the_model_is_compared(again: str, code: int, reason: str) -> None:
    whole, killed, resumed = runs()
    beside(whole, average("abcdefghi"))
    beside(killed, average("abcdef"))
    beside(resumed, average(again), START)
    found = judged(whole, killed, resumed)
    assert found.code == code
    assert "1 beside them" in found.lines[0]
    assert reason in found.lines[1]


def test_what_a_save_left_beside_the_model_is_no_difference_until_the_next_save() -> None:
    """As a staging buffer, or the best weights so far: the resumed process has none yet."""
    whole, killed, resumed = runs()
    beside(whole, average("abbccccdd"))
    beside(killed, average("abbccc"))
    beside(resumed, average("...xxxxdd"), START)
    found = judged(whole, killed, resumed)
    assert found.code == 0
    for rank in (whole, killed, resumed):  # without a save it cannot be compared
        for state in rank.after.values():
            state.beside.update({"average.0": ("x",) if rank is resumed else ("c",)})
    found = judged(whole, killed, resumed)
    assert found.code == 0
    assert found.lines[-1] == "not compared: average.0 (beside the model, with another value that no update has changed since the resume)"  # fmt: skip


def test_a_checkpoint_that_was_loaded_and_is_still_there_hides_no_lost_average() -> None:
    """It has the names of what it was saved from."""
    whole, killed, resumed = runs()
    beside(whole, average("abcdefghi"))
    beside(killed, average("abcdef"))
    beside(resumed, {n: {"average.0": f"d {one}"} for n, one in zip(range(3, 9), "xyzuvs")}, START)
    found = judged(whole, killed, resumed)
    assert found.code == 1
    assert "already different at the resume" in found.lines[1]
    beside(resumed, {n: {"average.0": f"d {one}"} for n, one in zip(range(4, 9), "efghi")}, START)
    beside(resumed, {3: {"average.0": "d"}}, START)
    assert judged(whole, killed, resumed).code == 0


@pytest.mark.parametrize(
    ("last", "ended", "text"),
    [
        (11, True, "DIFFERENT: ends after 11 updates in place of 8; same from update 4 to 8, "),
        (11, False, "DIFFERENT: ends after more than 11 updates in place of 8; same"),
        (8, False, "DIFFERENT: ends after more than 8 updates in place of 8; same"),
        (6, True, "DIFFERENT: ends after 6 updates in place of 8; same from update 4 to 6, "),
    ],
)
def test_where_both_end_is_compared(last: int, ended: bool, text: str) -> None:
    whole, killed, _ = runs()
    found = judged(whole, killed, run(range(START + 1, last + 1)), again_ended=ended)
    assert found.code == 1
    assert found.lines[0].startswith(text)


def test_an_end_that_was_not_reached_is_named() -> None:
    found = judged(*runs(), whole_ended=False)
    assert found.code == 0
    assert found.lines[-1] == "not compared: what comes after update 8 (--until)"


def test_the_last_state_is_compared_after_the_last_update() -> None:
    """As weights that are put in at the end, where both runs have them still."""
    whole, killed, again = runs()
    for rank, value in ((whole, "averaged"), (again, "other")):
        rank.after[max(rank.after)].later["w"] = value
    found = judged(whole, killed, again)
    assert found.code == 1
    assert found.lines[0].startswith("SILENTLY DIFFERENT from update 8 on")
    again.after[max(again.after)].ends.add(True)  # seen at another moment than in the other run
    assert judged(whole, killed, again).code == 0


def test_no_verdict_says_all_and_what_was_left_is_named() -> None:
    whole, killed, again = runs()
    whole.after[6].saved.update({"a.pt: w": "1", "b.pt: w": "2"})
    again.after[3].saved.update({"a.pt: w": "1"})
    again.live.add("c.pt")
    found = judged(whole, killed, again, unread=("raw.bin",))
    assert found.lines == (
        "same from update 4 to 8, bit by bit: 2 tensors of model and optimizer, 1 that it saves, random states and learning rates of the one rank",
        "lost work: 2 updates, killed after update 5, resumed from 3",
        "not compared: b.pt (saved by one run only, or of other updates)",
        "not compared: c.pt (written by a thread, without a copy, from what training changes)",
        "not compared: raw.bin (written by no engine that the probe knows)",
    )


def test_files_of_no_engine_are_found(tmp_path: Path) -> None:
    for name, content in (("seen/a", b"\0"), ("raw.bin", b"\0"), ("log.txt", b"loss"), ("events.out.tfevents.1", b"\0")):  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert unread(tmp_path, [str(tmp_path / "seen")]) == ("raw.bin",)


def test_a_copy_of_a_file_that_was_seen_is_known(tmp_path: Path) -> None:
    out = tmp_path / "out"
    lines: list[dict[str, Any]] = [
        {"event": "process"},
        {"event": "state_in_save", "path": f"{out}/new/a.pt"},
        {"event": "moved", "source": f"{out}/new", "path": f"{out}/step-3"},
        {"event": "duplicated", "source": f"{out}/step-3/a.pt", "path": f"{out}/best.pt"},
        {"event": "linked", "to": f"{out}/best.pt", "path": f"{out}/last.pt"},
    ]
    (tmp_path / "trace-h-1-1.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    for name in ("step-3/a.pt", "best.pt", "last.pt", "other.pt"):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(b"\0")
    assert unread(out, paths(tmp_path)) == ("other.pt",)


def test_an_update_that_the_resumed_run_left_out_is_the_cause() -> None:
    """It counts no update for it, so that both are aligned. Its learning rates are right."""
    whole, killed, again = runs()
    for own, one in list(again.after.items()):
        other = {"w": f"x{own}", "w/m": f"x{own}"}
        again.after[own] = replace(one, tensors=other, done=own + 1, backwards=own + 1)
    found = judged(whole, killed, again)
    assert found.code == 1
    assert found.lines[:2] == (
        "SILENTLY DIFFERENT from update 4 on (rank 0): 2 of 2 tensors, rng same, lr same; resumed from 3",
        "missing: the state of the scaler, or what else decides whether an update is made: the resumed run left out 1 update more than the undisturbed one",
    )
    for own, one in list(again.after.items()):  # by a guard, which calls no scaler
        again.after[own] = replace(one, done=own)
    assert "2 backward passes from the resume to update 4" in judged(whole, killed, again).lines[1]


def test_weights_that_change_between_updates_are_found_again() -> None:
    """Clamped after the update, or put in for a save: neither is the state after it."""
    killed = run(range(1, 6))
    killed.after[3].later.update({"w": "clamped"})
    killed.after[4].saved.update({"a.pt: model": "averaged", "a.pt: m": "m4"})
    for begin, update in (({"w": "clamped", "w/m": "m3"}, 3), ({"w": "averaged", "w/m": "m4"}, 4)):
        again = Rank(State(None, begin, {}, (0.1,)), {1: state(9)}, 1)
        assert resumed_from(killed, again) == update


def test_weights_that_change_between_updates_are_no_missing_part() -> None:
    whole, killed, again = runs()
    for rank in (whole, killed):
        rank.after[START].later["w"] = "clamped"
    again.begin = replace(again.begin or state(3), tensors={"w": "clamped", "w/m": "m3"})
    assert judged(whole, killed, again).restored is None


def test_a_random_state_that_was_restored_is_not_called_missing() -> None:
    whole, killed, again = runs()
    for own, one in list(again.after.items()):
        again.after[own] = replace(one, random={"torch": f"x{own}"}, tensors={"w": "x", "w/m": "x"})
    assert judged(whole, killed, again).lines[1] == "missing: the random state of torch"
    again.restored["torch"] = {"r3"}
    found = judged(whole, killed, again)
    assert found.lines[1].startswith("perhaps missing: the place in the data: the random state of torch was restored")  # fmt: skip
    assert found.lines[2].startswith("a guess: run the check again with --data")
    for rank, start in ((whole, 0), (killed, 0), (again, START)):
        for own, one in list(rank.after.items()):
            rank.after[own] = replace(one, batches=(f"b{own + start}",))
    found = judged(whole, killed, again, data=True)
    assert found.lines[1].startswith("missing: the random state of torch at the first update: ")
    assert "the batches are the same" in found.lines[1]
    again.restored["torch"] = {"another"}
    assert judged(whole, killed, again).lines[1] == "missing: the random state of torch"


def test_a_random_state_that_nothing_depends_on_is_no_difference() -> None:
    """As that of PyTorch, of which each iterator of a loader draws a seed for its processes."""
    whole, killed, again = runs()
    for own, one in list(again.after.items()):
        again.after[own] = replace(one, random={"torch": f"x{own}"})
    found = judged(whole, killed, again)
    assert found.code == 0
    assert found.lines[-1] == "not restored: the random state of torch, and the training draws from it, although nothing compared differs"  # fmt: skip


def test_batches_tell_the_place_in_the_data() -> None:
    whole, killed, again = runs()
    for rank, first in ((whole, 1), (killed, 1), (again, 1)):
        for own, one in list(rank.after.items()):
            rank.after[own] = replace(one, batches=(f"b{own + first}",))
    for own, one in list(again.after.items()):
        again.after[own] = replace(one, tensors={"w": "x", "w/m": "x"})
    found = judged(whole, killed, again, data=True)
    assert found.lines[1] == "missing: the place in the data: the model gets other batches in update 4: those of update 1"  # fmt: skip
    for own, one in list(again.after.items()):
        again.after[own] = replace(one, batches=(f"b{own + START + 1}",))
    found = judged(whole, killed, again, data=True)
    assert found.lines[1].startswith("perhaps missing: gradients of an accumulation")
    assert not any("--data" in line for line in found.lines)
    again.after[1] = replace(
        again.after[1], batches=("b5", "b6")
    )  # one was thrown away, without a backward pass
    found = judged(whole, killed, again, data=True)
    assert found.lines[1] == "missing: the place in an accumulation, or what decides whether an update is made: 2 batches for update 4, where the undisturbed run takes 1"  # fmt: skip


def test_the_optimizer_that_steps_second_is_compared_where_it_joins() -> None:
    whole, killed, again = runs()
    for rank, start in ((whole, 0), (killed, 0), (again, START)):
        for own, one in rank.after.items():
            one.tensors.update({"1:w": f"v{own + start}", "1:w/m": f"n{own + start}"})
    again.after[1].tensors.pop("1:w/m")
    again.joined[1] = {"1:w": "v4"}
    for own, one in again.after.items():
        one.tensors["1:w/m"] = f"x{own}"
    found = judged(whole, killed, again)
    assert found.lines[1] == "missing: the restored state is already different at the resume: 1 of 2 tensors, all slots of the optimizer (1:w/m)"  # fmt: skip


def test_a_save_counts_at_the_update_whose_state_it_holds(tmp_path: Path) -> None:
    """A thread may begin to write it later. One of nothing that is known counts at its begin."""
    lines: list[dict[str, Any]] = [
        {"event": "process", "format": 1, "run": "r", "host": "h", "pid": 1, "boot": "b", "at_ns": 0, "unix_ns": 0, "born_ns": 0, "restarts": 0, "rank": 0, "ranks": 1, "command": []},
        {"event": "updates", "first": 0, "at_ns": 1, "then_us": [1, 2, 3, 4], "backwards": 5, "counted": 5},
    ]  # fmt: skip
    for update in range(1, 6):  # one was left out before the second
        own = {"w": f"w{update}", "still": "s"}
        lines.append({"event": "state_after_update", "update": update, "done": update + (update > 1), "rank": 0, "step": None, "tensors": own, "random": {}, "rates": []})  # fmt: skip
    for name, update, held in (("1", 4, "w2"), ("2", 5, "other")):
        lines.append({"event": "save", "save": name, "kind": "torch.save", "path": "a", "start_ns": 2, "thread": "t", "stepping": False, "updates": update + 1})  # fmt: skip
        lines.append({"event": "state_in_save", "save": name, "path": "a", "stepping": False, "update": update, "rank": 0, "tensors": {"a: w": held, "a: still": "s"} if held != "other" else {"a: w": held}, "random": {}})  # fmt: skip
        lines.append({"event": "finished", "save": name, "at_ns": 3, "thread": "t"})
    lines.append({"event": "save", "save": "3", "kind": "orbax", "path": "b", "start_ns": 2, "thread": "t", "stepping": True, "updates": 4})  # fmt: skip
    (tmp_path / "trace-h-1-1.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    assert saves(tmp_path) == {2: True, 5: True, 3: False}

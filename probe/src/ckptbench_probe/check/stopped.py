"""How a training took the signal of a scheduler: one verdict, its reasons, its exit code."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckptbench_probe.check.recorder import UPDATED
from ckptbench_probe.check.restored import broken, start_of
from ckptbench_probe.check.runs import Ended
from ckptbench_probe.check.signals import LAUNCHER, Signalled
from ckptbench_probe.check.states import ranks
from ckptbench_probe.check.stopping import HANDED_ON_S, STANDS, STOPPED
from ckptbench_probe.programs import signal_s
from ckptbench_probe.reading import Event, traces
from ckptbench_probe.words import counted, duration

SAVES, TORN, CANNOT_TELL, NO_SAVE, TOO_LATE, IGNORES, HANGS = (
    "saves", "torn", "cannot tell", "no save", "too late", "ignores", "hangs",
)  # fmt: skip
EXIT_CODES = {
    verdict: code
    for code, verdict in enumerate((SAVES, TORN, CANNOT_TELL, NO_SAVE, TOO_LATE, IGNORES, HANGS))
}
AN_UPDATE_S, MOST = 1.0, 0.9
"""How long an update after that wait may take, and the most of the grace that it all may."""


@dataclass(frozen=True)
class Stop:
    at: int
    """Updates before the signal."""
    signal: str
    to: str
    grace_s: float


@dataclass(frozen=True)
class Save:
    path: str
    updates: int
    begun_s: float
    """After the signal, as all times here."""
    finished_s: float | None
    """None where it was never finished, or has failed."""


@dataclass(frozen=True)
class Rank:
    """Of the training that was stopped."""

    number: int
    last: int
    """Updates that it made in all."""
    trained_s: float
    """When it made the last one."""
    saves: tuple[Save, ...]
    stands: str
    """Where it stood at the end of the grace; empty where it had ended."""

    @property
    def at_signal(self) -> list[Save]:
        """Saves that were begun after it, or that it came in the middle of."""
        return [one for one in self.saves if one.begun_s > 0 or (one.finished_s or math.inf) > 0]


@dataclass(frozen=True)
class Verdict:
    verdict: str
    lines: tuple[str, ...]
    """For the user, the point first."""
    took_s: float | None = None
    """From the signal to the end."""
    resumed_from: int | None = None
    lost_updates: int | None = None
    paste: str | None = None
    """For the batch script of Slurm."""

    @property
    def code(self) -> int:
        return EXIT_CODES[self.verdict]


def cannot_tell(reason: str) -> Verdict:
    return Verdict(CANNOT_TELL, (f"cannot tell: {reason}",))


def seen(folder: Path) -> list[Rank]:
    """Each rank that waited for the signal."""
    found = [rank for _, events in traces(folder) for rank in _ranks(events)]
    return sorted(found, key=lambda rank: rank.number)


def _ranks(events: list[Event]) -> Iterator[Rank]:
    by_kind: dict[str, list[Event]] = {}
    for event in events:
        by_kind.setdefault(event["event"], []).append(event)
    for stopped in by_kind.get(STOPPED, [])[:1]:
        zero = int(stopped["at_ns"])
        sessions = {one["save"] for one in by_kind.get("save", []) if one["kind"] == "session"}
        ends = {  # a session tells at its end when its saves were finished, which a killed one does not
            one["save"]: (int(one.get("at_ns") or one["end_ns"]), bool(one["failed"]))
            for one in (*by_kind.get("end", []), *by_kind.get("finished", []))
            if one["event"] == "finished" or one["save"] in sessions
        }
        last = by_kind["updates"][-1]
        yield Rank(
            stopped["rank"],
            max(one["update"] for one in by_kind[UPDATED]),
            (last["at_ns"] + 1000 * max([0, *last["then_us"]]) - zero) / 1e9,
            tuple(_saves(by_kind.get("save", []), ends, zero)),
            next((one["where"] for one in by_kind.get(STANDS, [])), ""),
        )


def _saves(begins: list[Event], ends: dict[Any, tuple[int, bool]], zero: int) -> Iterator[Save]:
    for one in begins:
        at_ns, failed = ends.get(one["save"], (0, True))
        done = None if failed else (at_ns - zero) / 1e9
        yield Save(one["path"], one["updates"], (one["start_ns"] - zero) / 1e9, done)


def judge(stop: Stop, signalled: Signalled, stopped: list[Rank], again: Ended) -> Verdict:
    """By where the training goes on when it is started again: a save that no engine is known for counts as well."""
    before, after = ranks(signalled.run.folder), ranks(again.folder)
    cut = [save for rank in stopped for save in rank.at_signal if save.finished_s is None]
    start = start_of(before, after)
    why = broken(before, after, start, again)
    if why and cut:
        how = f"the save of {os.path.basename(cut[0].path)} was cut off"
        return Verdict(TORN, (f"TORN: {how}, and the resume takes it: {why}", *_more(stop, signalled, stopped)))  # fmt: skip
    if why or not isinstance(start, int):
        return cannot_tell(
            f"the training is not resumed from a whole update ({why or 'that of several fits'}), though no save was cut off: run check resume first"
        )
    last = min(rank.last for rank in stopped)
    known: dict[str, Any] = {
        "took_s": signalled.ended_s, "resumed_from": start, "lost_updates": last - start,
    }  # fmt: skip
    lost = (
        f"{counted(last - start, 'update')} lost, stopped after update {last}, resumed from {start}"
    )
    if start >= stop.at and any(one.finished_s is not None and one.finished_s <= 0 and one.updates == start for rank in stopped for one in rank.saves):  # fmt: skip
        return cannot_tell(f"update {start} was saved just before the signal: choose another --at")
    verdict, text = _taken(stop, signalled, stopped, cut, start)
    paste = _paste(stop, _needed(signalled, stopped)) if verdict == SAVES else None
    lines = [f"{text}: {lost}", *_more(stop, signalled, stopped)]
    if cut and verdict != SAVES:
        lines.append(f"the save of {os.path.basename(cut[0].path)} was cut off, and the resume did not take it")  # fmt: skip
    lines += _pasted(stop, paste)
    return Verdict(verdict, tuple(lines), paste=paste, **known)


def _taken(
    stop: Stop, signalled: Signalled, stopped: list[Rank], cut: list[Save], start: int
) -> tuple[str, str]:
    """The verdict, and the begin of its line."""
    grace, took = duration(stop.grace_s), signalled.ended_s
    trained_s = max(rank.trained_s for rank in stopped)
    answered = [one for rank in stopped for one in rank.at_signal if one.updates <= stop.at + 1]
    if signalled.left:
        return NO_SAVE, f"ends without a save: {stop.signal} ended the command itself, and left its ranks to SIGKILL"  # fmt: skip
    if took is not None:
        if start >= stop.at:
            return SAVES, f"saves and ends in {duration(took)} of the {grace}"
        late = any(one.begun_s > 0 for one in cut)
        how = "before its save was finished" if late else "without a save"
        return (TOO_LATE if late else NO_SAVE), f"ends {how}, in {duration(took)} of the {grace}"
    if trained_s > _goes_on_s(stop.grace_s):
        if start >= stop.at and any(one.finished_s is not None for one in answered):
            return SAVES, f"saves in {duration(_saved_s(stopped))}, and trains on until SIGKILL after {grace}"  # fmt: skip
        more = max(rank.last for rank in stopped) - stop.at
        return IGNORES, f"ignores {stop.signal}: it trains on until SIGKILL after {grace}, {counted(more, 'update')} more"  # fmt: skip
    if signalled.grew and start >= stop.at:
        return SAVES, f"saves in {duration(_saved_s(stopped))}, and has not ended until SIGKILL after {grace}"  # fmt: skip
    if signalled.grew and (cut or not any(rank.saves for rank in stopped)):
        return TOO_LATE, f"saves too late: the save was not finished after {grace}"
    saved = "has saved, and " if start >= stop.at else ""
    return HANGS, f"hangs: it {saved}stands still until SIGKILL after {grace}"


def _goes_on_s(grace_s: float) -> float:
    """A training that still makes an update so long after the signal goes on. Before, a rank may have waited for the launcher to hand the signal on."""
    return min(max(grace_s / 2, HANDED_ON_S + AN_UPDATE_S), MOST * grace_s)


def _saved_s(stopped: list[Rank]) -> float:
    return max([0.0, *(one.finished_s or 0.0 for rank in stopped for one in rank.at_signal[:1])])


def _needed(signalled: Signalled, stopped: list[Rank]) -> float:
    return _saved_s(stopped) if signalled.ended_s is None else signalled.ended_s


def _more(stop: Stop, signalled: Signalled, stopped: list[Rank]) -> Iterator[str]:
    if signalled.left:
        yield "start the ranks by exec, or have the command hand the signal on"
    if signalled.ended_s is None:
        for rank in stopped:
            if rank.stands:
                yield f"rank {rank.number} stood in {rank.stands}"
    elif signalled.run.code:
        code = signalled.run.code
        yield f"it ended with exit code {code}" if code > 0 else f"it ended by signal {-code}"


def _paste(stop: Stop, needed_s: float) -> str:
    seconds = signal_s(needed_s)
    batch = "B:" if stop.to == LAUNCHER else ""
    return f"#SBATCH --signal={batch}{stop.signal[3:]}@{seconds}"


def _pasted(stop: Stop, paste: str | None) -> Iterator[str]:
    if paste is not None:
        who = (
            "and end the batch script with `exec COMMAND`, without srun"
            if stop.to == LAUNCHER
            else "it reaches what srun has started, and not the batch script"
        )
        yield f"paste: {paste} ({who})"

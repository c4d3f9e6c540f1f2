"""The run that a log is of: the steps between two of its lines, and the saves beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from ckptbench.decide.training_log.events import Event

INTERLEAVED = 0.25
"""Where steps go back, or are told again, in more than this part of the lines, several ranks write into the log."""


@dataclass(slots=True)
class Save:
    """One checkpoint. None: not told."""

    step: int
    is_told: bool
    """Whether the log names its step: else it is that of the line of a step before it."""
    at_s: float | None = None
    """When it began."""
    stall_s: float | None = None
    finished_s: float | None = None
    """From its beginning until the program says that it is finished."""
    background: bool = False


@dataclass(slots=True, kw_only=True)
class Window:
    """What lies between the lines of two steps."""

    steps: int
    last: Event
    """The line that ends it."""
    passed_s: float | None
    """None where the lines have no times, or the clock went back."""
    saves: list[Save]
    paused: bool
    """Whether the training evaluated or so meanwhile."""
    pause_s: float
    """For how long, as far as the log says it."""
    is_first: bool
    """Of a start of the training."""
    follows_save: bool


@dataclass(slots=True)
class Start:
    """From a start of the training to the next, or to the end."""

    step: int
    """That of its first line."""
    at_s: float | None
    since: int = 0
    """The step of the checkpoint that it goes on from."""
    killed_s: float | None = None
    """The time of the last line before it, where it goes on from a checkpoint."""
    saves: list[Save] = field(default_factory=list)


@dataclass(slots=True)
class Run:
    """All starts of a training that are in one log."""

    windows: list[Window] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)

    @property
    def stride(self) -> int:
        """Steps from one line to the next, as a rule."""
        return int(median(window.steps for window in self.windows)) if self.windows else 1

    @property
    def steps(self) -> int:
        """All that were done, those before the first line of each start included."""
        between = sum(window.steps for window in self.windows)
        return between + sum(map(self.before, self.starts))

    def before(self, start: Start) -> int:
        """Steps that the first line of a start ends, as far as it can be known."""
        return min(self.stride, start.step - start.since)

    @classmethod
    def of(cls, events: Sequence[Event]) -> Run:
        """Raises nothing: what makes no sense is left out."""
        steps = [event.step or 0 for event in events if event.kind == "step"]
        often = INTERLEAVED * len(steps)
        walk = _Walk(
            cls(),
            goes_back=sum(after < before for before, after in pairwise(steps)) <= often,
            repeats=sum(after == before for before, after in pairwise(steps)) > often,
        )
        for event in events:
            walk.take(event)
        return walk.run


class _Walk:
    """From line to line."""

    def __init__(self, run: Run, *, goes_back: bool, repeats: bool) -> None:
        self.run, self.goes_back, self.repeats = run, goes_back, repeats
        self.saves: dict[int, Save] = {}
        """The latest of each step of this start, in order."""
        self.latest_s: float | None = None
        self.killed_s: float | None = None
        """The time of the last line before those of a new start, as far as these show before its first step."""
        self.starts_again = False
        self.previous: Event | None = None
        self.lines_of_start = 0
        self.at_step = 0
        self.beside: list[Save] = []
        self.paused, self.pause_s = False, 0.0

    def take(self, event: Event) -> None:
        self._look_for_start(event)
        if event.kind == "step":
            self._step(event)
        elif event.kind == "save":
            self._save(event)
        elif event.kind == "pause":
            self.paused, self.pause_s = True, self.pause_s + (event.seconds or 0.0)
            self.at_step = event.step or self.at_step
        elif event.kind == "finished":
            self._finish(event)
        self.latest_s = self.latest_s if event.at_s is None else event.at_s

    def _look_for_start(self, event: Event) -> None:
        """A start prints how many GPUs there are. It may evaluate and save before the line of its first step."""
        if self.previous is None:
            return
        self.starts_again = self.starts_again or event.kind == "gpus"
        goes_back = event.kind in ("pause", "save") and (event.step or self.at_step) < self.at_step
        if self.killed_s is None and (goes_back or event.kind == "gpus"):
            self.killed_s = self.latest_s

    def _step(self, event: Event) -> None:
        assert event.step is not None
        before = self.previous
        if before is not None and (self.starts_again or event.step <= (before.step or 0)):
            if not self.starts_again and (event.step == before.step or not self.goes_back):
                return  # told already, by another rank or the same bar
            before = None
        if before is None:
            self._start(event)
        else:
            self._window(before, event)
        self.lines_of_start += 1
        self.previous, self.at_step = event, event.step
        self.beside, self.paused, self.pause_s = [], False, 0.0
        self.killed_s, self.starts_again = None, False

    def _start(self, event: Event) -> None:
        assert event.step is not None
        starts = self.run.starts
        goes_on = bool(starts) and event.step > starts[0].step
        killed_s = self.latest_s if self.killed_s is None else self.killed_s
        saved = (save.step for start in starts for save in start.saves if save.step < event.step)
        since = max(saved, default=0) if goes_on else 0
        starts.append(Start(event.step, event.at_s, since, killed_s if goes_on else None))
        self.saves, self.lines_of_start = {}, 0

    def _window(self, before: Event, event: Event) -> None:
        assert before.step is not None
        assert event.step is not None
        passed_s = None
        if before.at_s is not None and event.at_s is not None and event.at_s >= before.at_s:
            passed_s = event.at_s - before.at_s
        windows = self.run.windows
        windows.append(
            Window(
                steps=event.step - before.step, last=event, passed_s=passed_s, saves=self.beside,
                paused=self.paused, pause_s=self.pause_s, is_first=self.lines_of_start == 1,
                follows_save=self.lines_of_start > 1 and bool(windows and windows[-1].saves),
            )
        )  # fmt: skip

    def _save(self, event: Event) -> None:
        latest = next(reversed(self.saves.values()), None)
        if event.step is None and latest and event.seconds is not None and latest.stall_s is None:
            save: Save | None = latest
        else:
            save = self.saves.get(self.at_step if event.step is None else event.step)
        is_told = save is not None and save.stall_s is not None
        # All ranks begin before any has finished.
        is_next = is_told and event.step is None and (event.seconds is None or not self.repeats)
        if save is None or is_next:
            save = self._begin(event)
        save.at_s = event.at_s if save.at_s is None else save.at_s
        save.background = save.background or event.background
        if event.seconds is not None:  # training waits for the slowest rank
            save.stall_s = max(event.seconds, save.stall_s or 0.0)

    def _begin(self, event: Event) -> Save:
        is_told = event.step is not None
        save = Save(self.at_step if event.step is None else event.step, is_told)
        self.saves[save.step] = save
        self.beside.append(save)
        if self.run.starts:
            self.run.starts[-1].saves.append(save)
        return save

    def _finish(self, event: Event) -> None:
        latest = next(reversed(self.saves.values()), None)
        save = latest if event.step is None else self.saves.get(event.step)
        if save is None:
            return
        if event.seconds is not None:
            save.finished_s = event.seconds
        elif save.at_s is not None and event.at_s is not None and event.at_s >= save.at_s:
            save.finished_s = event.at_s - save.at_s

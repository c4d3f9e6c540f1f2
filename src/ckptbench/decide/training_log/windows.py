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
    """The steps between two lines of the log, with the saves and pauses among them."""

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
    """One start of the training, until the next one or the end."""

    step: int
    """That of its first line."""
    at_s: float | None
    since: int = 0
    """The step of the checkpoint that it goes on from."""
    killed_s: float | None = None
    """The time of the last line before it, where it goes on from a checkpoint."""
    saves: list[Save] = field(default_factory=list)


class Run:
    """All starts of a training that are in one log. What makes no sense in it is left out."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.windows: list[Window] = []
        self.starts: list[Start] = []
        self.jumps = 0
        """Times that the clock went back while steps went on."""
        steps = [event.step or 0 for event in events if event.kind == "step"]
        often = INTERLEAVED * len(steps)
        self._goes_back = sum(after < before for before, after in pairwise(steps)) <= often
        self._repeats = sum(after == before for before, after in pairwise(steps)) > often
        self._saves: dict[int, Save] = {}
        """The latest of each step of this start, in order."""
        self._latest_s: float | None = None
        self._killed_s: float | None = None
        """The time of the last line before those of a new start, as far as these show before its first step."""
        self._starts_again = False
        self._previous: Event | None = None
        """The last line of a step."""
        self._line, self._is_first = 0, True
        """The step of that line; whether it is the first of a start."""
        self._at_step = 0
        self._beside: list[Save] = []
        self._paused, self._pause_s = False, 0.0
        for event in events:
            self._take(event)

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

    def _take(self, event: Event) -> None:
        self._look_for_start(event)
        if event.kind == "step":
            self._step(event, event.step or 0)
        elif event.kind == "save":
            self._save(event)
        elif event.kind == "pause":
            self._paused, self._pause_s = True, self._pause_s + (event.seconds or 0.0)
            self._at_step = event.step or self._at_step
        elif event.kind == "finished":
            self._finish(event)
        self._latest_s = self._latest_s if event.at_s is None else event.at_s

    def _look_for_start(self, event: Event) -> None:
        """A start prints how many GPUs there are. It may evaluate and save before the line of its first step."""
        if self._previous is None:
            return
        self._starts_again = self._starts_again or event.kind == "gpus"
        goes_back = (
            event.kind in ("pause", "save") and (event.step or self._at_step) < self._at_step
        )
        if self._killed_s is None and (goes_back or event.kind == "gpus"):
            self._killed_s = self._latest_s

    def _step(self, event: Event, step: int) -> None:
        before = self._previous
        if before is None or self._starts_again or (step < self._line and self._goes_back):
            self._start(event, step)
        elif step > self._line or (step == self._line and event.number and self._beside):
            # A bar is printed once more after a save.
            self._window(before, event, step - self._line)
        else:
            return  # told already, by another rank or the same bar
        self._previous, self._line, self._at_step = event, step, step
        self._beside, self._paused, self._pause_s = [], False, 0.0
        self._killed_s, self._starts_again = None, False

    def _start(self, event: Event, step: int) -> None:
        start = Start(step, event.at_s)
        if self.starts and step > self.starts[0].step:  # it goes on
            saved = (save.step for each in self.starts for save in each.saves if save.step < step)
            start.since = max(saved, default=0)
            start.killed_s = self._latest_s if self._killed_s is None else self._killed_s
        self.starts.append(start)
        self._saves, self._is_first = {}, True

    def _window(self, before: Event, event: Event, steps: int) -> None:
        passed_s = None
        if before.at_s is not None and event.at_s is not None:
            passed_s = event.at_s - before.at_s
            if passed_s < 0:
                passed_s, self.jumps = None, self.jumps + 1
        follows_save = not self._is_first and bool(self.windows[-1].saves)
        self.windows.append(
            Window(
                steps=steps, last=event, passed_s=passed_s, saves=self._beside, paused=self._paused,
                pause_s=self._pause_s, is_first=self._is_first, follows_save=follows_save,
            )
        )  # fmt: skip
        self._is_first = False

    def _save(self, event: Event) -> None:
        latest = next(reversed(self._saves.values()), None)
        if event.step is None and latest and event.seconds is not None and latest.stall_s is None:
            save: Save | None = latest
        else:
            save = self._saves.get(self._at_step if event.step is None else event.step)
        is_told = save is not None and save.stall_s is not None
        # All ranks begin before any has finished.
        is_next = is_told and event.step is None and (event.seconds is None or not self._repeats)
        if save is None or is_next:
            save = self._begin(event)
        save.at_s = event.at_s if save.at_s is None else save.at_s
        save.background = save.background or event.background
        if event.seconds is not None:  # training waits for the slowest rank
            save.stall_s = max(event.seconds, save.stall_s or 0.0)

    def _begin(self, event: Event) -> Save:
        is_told = event.step is not None
        save = Save(self._at_step if event.step is None else event.step, is_told)
        self._saves[save.step] = save
        self._beside.append(save)
        if self.starts:
            self.starts[-1].saves.append(save)
        return save

    def _finish(self, event: Event) -> None:
        latest = next(reversed(self._saves.values()), None)
        save = latest if event.step is None else self._saves.get(event.step)
        if save is None:
            return
        if event.seconds is not None:
            save.finished_s = event.seconds
        elif save.at_s is not None and event.at_s is not None and event.at_s >= save.at_s:
            save.finished_s = event.at_s - save.at_s

"""The run that a log is of: the steps between two of its lines, and the saves beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ckptbench.decide.training_log.events import Event

SEVERAL = 0.25
"""Where the steps of more than this part of the lines do not rise, several ranks write into the log."""

DATED_S = 1e8
"""A time beyond it, in 1973, is a date. Below it is a clock that starts with the training."""
FAR = 2
"""A start that goes on by more than so many times the steps between two lines has left steps out."""


@dataclass(slots=True)
class Window:
    """The steps between two lines of the log, with the saves and pauses among them."""

    follows_save: bool = False
    before: int = 0
    """The step of the line before."""
    steps: int = 0
    took_s: float | None = None
    """How long a step took, as the line that ends it says."""
    passed_s: float | None = None
    """None where the lines have no times, or the clock went back."""
    begun: int = 0
    """Saves that lines name as they begin or end."""
    stalls: list[float] = field(default_factory=list)
    """How long training stood still for saves, as lines say it."""
    paused: bool = False
    """Whether the training evaluated or so meanwhile."""
    pause_s: float = 0.0
    """For how long, as far as the log says it."""

    @property
    def saves(self) -> int:
        return max(self.begun, len(self.stalls))


@dataclass(slots=True)
class Start:
    """The steps of one start of the training, as far as the log has them."""

    first: int
    last: int
    of: int
    """Of how many, as a bar says it; 0 where none does."""
    down_s: float | None = None
    """From the last line of the start before to the first step of this one, where both have a date."""
    resumed: int | None = None
    """The step of the latest save before its first step."""
    near: int = 0
    """No more steps than this lie between a save and the first line behind it."""

    @property
    def begin(self) -> int:
        """Its first step. A log with a line per ten steps may begin with the tenth behind the save."""
        since = self.first if self.resumed is None else self.first - self.resumed
        return self.first - since + 1 if since <= self.near else self.first


class Run:
    """All of a training that one log says. What lies between two starts of it is left out."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.windows: list[Window] = []
        self.begun: list[int] = []
        """The steps of the saves that lines name as they begin or end."""
        self.timed: list[int] = []
        """Of those that lines say the duration of."""
        self.stalls: list[float] = []
        """Of the timed ones: how long training stood still for each."""
        self.finished: list[float] = []
        """Seconds from the beginning of a save until the program says that it is finished."""
        self.unseen: list[int] = []
        """The last steps before a start that goes on much later: the log of the start between them is missing."""
        self.starts: list[Start] = []
        self._seen_s: float | None = None
        """The date of the latest line."""
        steps = [event.step or 0 for event in events if event.kind == "step"]
        self._several = sum(b <= a for a, b in pairwise(steps)) > SEVERAL * len(steps)
        self._before: Event | None = None
        """The latest line of a step of this start."""
        self._step = 0
        self._began_s: dict[int, float | None] = {}
        """When the latest saves began."""
        self._window = Window()
        for event in events:
            self._take(event)

    @property
    def made(self) -> int:
        """All steps: those between lines, and those up to the first line of each start."""
        to_first = sum(start.first - start.begin + 1 for start in self.starts)
        return to_first + sum(window.steps for window in self.windows)

    @property
    def again(self) -> int:
        """Those of them that were made before, as a start goes on from a save."""
        number, seen = 0, list[tuple[int, int]]()
        for place, start in enumerate(self.starts):
            if place and self.is_new(start, self.starts[place - 1]):
                seen = []
            first, last = start.begin, start.last
            met = [each for each in seen if each[0] <= last and first <= each[1]]
            number += sum(min(last, end) - max(first, begin) + 1 for begin, end in met)
            ends = [(first, last), *met]
            whole = (min(begin for begin, _ in ends), max(end for _, end in ends))
            seen = [*(each for each in seen if each not in met), whole]
        return number

    def is_new(self, start: Start, before: Start) -> bool:
        """Whether steps are counted from the beginning again, as in a new epoch or after a whole training."""
        begin = self.starts[0].first
        lasts = [each.last for each in self.starts if each.first <= begin]
        return start.first <= begin and (before.last == before.of or lasts.count(before.last) > 1)

    def _take(self, event: Event) -> None:
        self._take_kind(event)
        if event.at_s is not None:
            self._seen_s = event.at_s if event.at_s > DATED_S else None

    def _take_kind(self, event: Event) -> None:
        match event.kind:
            case "step":
                self._end_window(event, event.step or 0)
            case "gpus" | "start":  # a start prints how many there are
                self._before = None
            case "pause":
                self._window.paused = True
                self._window.pause_s += event.seconds or 0.0
                self._step = event.step or self._step
            case "save" if self._before:
                self._save(event)
            case "finished":
                self._finish(event)

    def _end_window(self, event: Event, step: int) -> None:
        before, window = self._before, self._window
        last = (before.step or 0) if before else step + 1
        if step < last and not (before and self._several):
            if self.windows and step - self._step > FAR * max(each.steps for each in self.windows):
                self.unseen.append(self._step)
            self._window, self._began_s = Window(), {}
            self._begin(event, step)
        # A bar is printed once more after a save.
        elif step > last or (step == last and event.number and window.saves):
            window.before, window.steps, window.took_s = last, step - last, event.seconds
            self.starts[-1].last = step
            if before and before.at_s is not None and event.at_s is not None:
                passed_s = event.at_s - before.at_s
                window.passed_s = passed_s if passed_s >= 0 else None
            self.windows.append(window)
            self._window = Window(follows_save=bool(window.saves))
        else:
            return  # of another rank, or the same bar
        self._before, self._step = event, step

    def _begin(self, event: Event, step: int) -> None:
        """A start begins with this step."""
        start = Start(step, step, event.number)
        if self.starts:
            saved = {*self.begun, *self.timed}
            start.resumed = max((each for each in saved if each < step), default=None)
            start.near = max((each.steps for each in self.windows), default=0)
            if self._seen_s is not None and event.at_s is not None:
                start.down_s = event.at_s - self._seen_s
        self.starts.append(start)

    def _save(self, event: Event) -> None:
        window, latest = self._window, next(reversed(self._began_s), self._step)
        if event.seconds is None:
            step = self._step if event.step is None else event.step
            if step not in self._began_s:  # else of another rank, or more on the same save
                self.begun.append(step)
                window.begun += 1
            self._began_s.setdefault(step, event.at_s)
        elif self._several and window.stalls:  # training waits for the slowest rank
            self.stalls[-1] = window.stalls[-1] = max(window.stalls[-1], event.seconds)
        else:
            self.stalls.append(event.seconds)
            window.stalls.append(event.seconds)
            self.timed.append(latest if event.step is None else event.step)

    def _finish(self, event: Event) -> None:
        latest = next(reversed(self._began_s), self._step)
        began_s = self._began_s.get(latest if event.step is None else event.step)
        if event.seconds is not None:
            self.finished.append(event.seconds)
        elif began_s is not None and event.at_s is not None and event.at_s >= began_s:
            self.finished.append(event.at_s - began_s)

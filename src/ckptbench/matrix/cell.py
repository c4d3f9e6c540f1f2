"""One point of the matrix: what a cell is, which cells are valid, and what a cell is called."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any, Literal, Self

from ckptbench.errors import ConfigError
from ckptbench.frameworks import FRAMEWORKS

Accelerator = Literal["cpu", "cuda"]

WHOLE = "whole"
KILLED = {"killed_between": 1, "killed_inside": 1, "killed_thrice": 3}
"""How often SIGKILL ends a run of such a history before it ends by itself."""
KILLED_INSIDE = {"killed_between": 0, "killed_inside": 1, "killed_thrice": 2}
"""How many of these kills come while a checkpoint is being written."""
HISTORIES = (WHOLE, "again", *KILLED)
"""What a run lives through: nothing, nothing either (a second run of the same seed), or kills and restarts."""

NOTHING = "nothing"
OMISSIONS = (NOTHING, "position", "momentum", "random", "dropout", "statistics", "first_update")
"""What a restart leaves out on purpose; each framework's registry entry says which of these matter to it."""
OF_SEVERAL_RANKS = ("statistics", "first_update")

Cache = Literal["warm", "cold"]

# A baseline writes nothing, so it has no format: all formats of a framework share one baseline.
NO_FORMAT = "none"


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """Epochs or steps between two checkpoints; `every == 0` means never.

    Written `never`, `e5` (every five epochs) or `s50` (every fifty steps).
    """

    unit: Literal["epochs", "steps"]
    every: int

    @classmethod
    def parse(cls, text: str) -> Self:
        if text == "never":
            return cls("epochs", 0)
        match = re.fullmatch(r"([es])([1-9][0-9]*)", text)
        if match is None:
            raise ConfigError(f'interval "{text}" is none of "never", "e<epochs>", "s<steps>"')
        return cls("epochs" if match[1] == "e" else "steps", int(match[2]))

    def __str__(self) -> str:
        return f"{self.unit[0]}{self.every}" if self.every else "never"

    def due(self, *, steps_done: int, steps_per_epoch: int) -> bool:
        """Whether a checkpoint follows the step that made it `steps_done` in all."""
        every = self.steps(steps_per_epoch)
        return every > 0 and steps_done % every == 0

    def steps(self, steps_per_epoch: int) -> int:
        """Steps from one checkpoint to the next; 0 for never."""
        return self.every * (steps_per_epoch if self.unit == "epochs" else 1)


NEVER = Interval("epochs", 0)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Cell:
    """One point of the matrix. Raises ConfigError where the combination is impossible."""

    framework: str
    model: str
    dataset: str
    ranks: int
    batch_size: int
    """Samples per rank and step."""
    epochs: int
    format: str
    interval: Interval
    strategy: str = "native"
    deterministic: bool = False
    accelerator: Accelerator = "cpu"
    history: str = WHOLE
    omit: str = NOTHING
    """What a restart of a killed run leaves out of the state."""
    cache: Cache = "warm"
    """Whether the page cache holds the checkpoint that a killed run restarts from."""
    repeat: int = 0

    def __post_init__(self) -> None:
        if self.framework not in FRAMEWORKS:
            raise ConfigError(f'unknown framework "{self.framework}": use {", ".join(FRAMEWORKS)}')
        if (self.interval == NEVER) != (self.format == NO_FORMAT):
            raise ConfigError(
                f"interval {self.interval} with format {self.format}: only a baseline has no format"
            )
        formats = FRAMEWORKS[self.framework].formats
        if self.format not in (NO_FORMAT, *formats):
            raise ConfigError(
                f"{self.framework} does not write {self.format}: use {', '.join(formats)}"
            )

        self._check_history()

    def _check_history(self) -> None:
        if self.history != WHOLE and self.is_baseline:
            raise ConfigError(
                f"history {self.history} needs an interval other than never: baselines are not disturbed"
            )
        if not self.is_killed and (self.omit, self.cache) != (NOTHING, "warm"):
            raise ConfigError(
                f"omit and cache are of restarts, and history {self.history} has none: use {', '.join(KILLED)}"
            )
        needed = FRAMEWORKS[self.framework].omissions
        if self.omit not in (NOTHING, *needed):
            raise ConfigError(
                f"{self.framework} restarts the same without {self.omit}: omit one of {', '.join(needed)}"
            )
        if self.omit in OF_SEVERAL_RANKS and self.ranks == 1:
            raise ConfigError(f"omit {self.omit} needs ranks from 2: one rank alone loses nothing")

    @property
    def is_killed(self) -> bool:
        return self.history in KILLED

    @property
    def id(self) -> str:
        """Readable and stable: depends on this cell alone, never on what else is in the matrix."""
        parts = [
            self.framework,
            self.model,
            self.dataset,
            f"r{self.ranks}",
            f"b{self.batch_size}",
            f"n{self.epochs}",
            *([self.strategy] if self.strategy != "native" else []),
            *([self.format] if self.format != NO_FORMAT else []),
            str(self.interval),
            *(["deterministic"] if self.deterministic else []),
            *([self.accelerator] if self.accelerator != "cpu" else []),
            *([self.history] if self.history != WHOLE else []),
            *([f"without_{self.omit}"] if self.omit != NOTHING else []),
            *([self.cache] if self.cache != "warm" else []),
            f"rep{self.repeat}",
        ]
        return "-".join(parts)

    @property
    def is_baseline(self) -> bool:
        return self.interval == NEVER

    @property
    def baseline(self) -> Self:
        """The cell with interval `never`, otherwise equal."""
        return dataclasses.replace(
            self.reference, interval=NEVER, format=NO_FORMAT, strategy="native"
        )

    @property
    def reference(self) -> Self:
        """The cell of the uninterrupted run that a restarted one, or a second one of the same seed, is held against."""
        return dataclasses.replace(self, history=WHOLE, omit=NOTHING, cache="warm")

    @property
    def environment(self) -> str:
        """The name of the environment it runs in: `envs/<name>.txt` is its lock."""
        return (
            self.framework if self.accelerator == "cpu" else f"{self.framework}-{self.accelerator}"
        )

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "interval": str(self.interval)}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        return cls(**{**fields, "interval": Interval.parse(fields["interval"])})

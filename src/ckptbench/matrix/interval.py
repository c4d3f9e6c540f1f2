"""The interval between two checkpoints of a run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, Self

from ckptbench.common.errors import ConfigError


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
            raise ConfigError(f'interval "{text}" is not one of "never", "e<epochs>", "s<steps>"')
        return cls("epochs" if match[1] == "e" else "steps", int(match[2]))

    def __str__(self) -> str:
        return f"{self.unit[0]}{self.every}" if self.every else "never"

    def due(self, *, steps_done: int, steps_per_epoch: int) -> bool:
        """Whether a checkpoint follows the step after which the run has done `steps_done` steps."""
        every = self.steps(steps_per_epoch)
        return every > 0 and steps_done % every == 0

    def steps(self, steps_per_epoch: int) -> int:
        """Steps from one checkpoint to the next; 0 for never."""
        return self.every * (steps_per_epoch if self.unit == "epochs" else 1)


NEVER = Interval("epochs", 0)

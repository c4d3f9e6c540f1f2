"""When a training saves and when its epochs end, in updates, and on how many ranks: checks follow from it where they kill and stop it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm


class NotApplicableError(Exception):
    """The message says why a question does not apply to this training."""


@dataclass(frozen=True)
class Rhythm:
    every: int
    """Updates between two saves."""
    epoch: int | None = None
    """Updates of an epoch, where the user names it."""
    ranks: int | None = None
    resume_ranks: int | None = None
    """Another number, on which it is resumed as well."""

    def after_save(self, update: int) -> int:
        """As long after this save as can be before the next one: it may go on in the background."""
        return update + max(1, self.every - 1)

    @property
    def between_saves(self) -> int:
        """After the second save, so that an earlier one is there too."""
        return 2 * self.every + max(1, self.every // 2)

    @property
    def epoch_end(self) -> int:
        """A save at the end of an epoch. Raises NotApplicableError."""
        if self.epoch is None:
            raise NotApplicableError("name the updates of an epoch by --epoch")
        return lcm(self.epoch, self.every)

    @property
    def within_epoch(self) -> int:
        """The last save before the end of the second epoch, or without epochs the second save. Raises NotApplicableError."""
        if self.epoch is None:
            return 2 * self.every
        end = self.epoch_end + self.epoch
        within = (end - 1) // self.every * self.every
        if within <= self.epoch_end:
            raise NotApplicableError("it saves only at the end of an epoch")
        return within

    @property
    def other_ranks(self) -> list[str]:
        """Options of a check that resumes on them. Raises NotApplicableError."""
        if self.ranks is None or self.resume_ranks is None:
            raise NotApplicableError("name another number of ranks by --ranks and --resume-ranks")
        return ["--ranks", str(self.ranks), "--resume-ranks", str(self.resume_ranks)]

    def until(self, kill_at: int) -> list[str]:
        """Options that compare the runs past the end of an epoch."""
        return [] if self.epoch is None else ["--until", str(kill_at + self.epoch)]


def updates_between(saves: Sequence[int]) -> int | None:
    """Of saves after these updates; None where there are too few."""
    found = sorted({one for one in saves if one > 0})
    return min((after - before for before, after in zip(found, found[1:])), default=None)

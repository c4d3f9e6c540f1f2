"""What a check of a resume has seen, from which its verdict follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

from ckptbench_probe.check.compare import Ranks


@dataclass(frozen=True)
class Seen:
    """The runs, and what is known of the kill."""

    whole: Ranks
    killed: Ranks
    again: Ranks
    kill_at: int
    saves: dict[int, bool]
    """Of the killed run, by the update whose state each holds: whether it was finished."""
    failure: str | None
    """How the run that was started again has failed, as in "failed: exit code 1"."""
    repeat: Callable[[], Ranks]
    """A second undisturbed run, made if it is needed."""
    whole_ended: bool = False
    """Whether the undisturbed run came to its own end."""
    again_ended: bool = False
    unread: tuple[str, ...] = ()
    """Files that no engine was seen to write."""
    data: bool = False
    """Whether it is recorded what the model is given."""
    until: int | None = None
    """The last update that is compared."""

"""Measures the checkpoints of a training from inside its processes. Nothing happens unless it is started.

`ckptbench-probe run -- COMMAND` needs no change of the training. `session()` is for loops that no hook sees.
`Interval` says when a save is due.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` takes longer to import than all that is here
if TYPE_CHECKING:
    from ckptbench_probe.due.interval import Interval
    from ckptbench_probe.explicit import Session, session

__version__ = "0.1.0"
__all__ = ["Interval", "Session", "__version__", "session"]


def __getattr__(name: str) -> object:
    """The others are imported when they are asked for: every Python process of a training imports this package."""
    if name in ("session", "Session"):
        from ckptbench_probe import explicit

        return getattr(explicit, name)
    if name == "Interval":
        from ckptbench_probe.due import interval

        return interval.Interval
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

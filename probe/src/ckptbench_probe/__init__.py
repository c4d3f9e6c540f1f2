"""Measures the checkpoints of a training from inside its processes. Nothing happens unless it is started.

`ckptbench-probe run -- COMMAND` needs no change of the training. `session()` is for loops that no hook sees.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` takes longer to import than all that is here
if TYPE_CHECKING:
    from ckptbench_probe.explicit import Session, session

__version__ = "0.1.0"
__all__ = ["Session", "__version__", "session"]


def __getattr__(name: str) -> object:
    """`session` and `Session` are imported when they are asked for: every Python process of a training imports this package."""
    if name in ("session", "Session"):
        from ckptbench_probe import explicit

        return getattr(explicit, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""`Trainer.save_checkpoint` of Lightning. With `AsyncCheckpointIO` the file is written in a thread: see `lightning_io`."""

from __future__ import annotations

from typing import Any

from ckptbench_probe.engines.wrapping import argument, saving
from ckptbench_probe.process import PROCESS
from ckptbench_probe.saves import Save

ASYNCHRONOUS = "AsyncCheckpointIO"


def patch(module: Any) -> None:
    original = module.Trainer.save_checkpoint

    def target(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        path = argument(args, kwargs, 1, "filepath")
        return None if path is None else str(path)

    waits = saving(original, "lightning", target=target)
    goes_on = saving(original, "lightning.async", target=target, after=_captured)

    def save_checkpoint(self: Any, *args: Any, **kwargs: Any) -> Any:
        kind = type(self.strategy.checkpoint_io).__name__
        return (goes_on if kind == ASYNCHRONOUS else waits)(self, *args, **kwargs)

    save_checkpoint.__doc__ = original.__doc__
    save_checkpoint.__wrapped__ = original  # type: ignore[attr-defined]
    module.Trainer.save_checkpoint = save_checkpoint


def _captured(save: Save, _: Any) -> None:
    """The state is copied on the thread that steps (Lightning 2.6). Ranks that write nothing are finished: their plugin is not called."""
    PROCESS.saves.captured(save)

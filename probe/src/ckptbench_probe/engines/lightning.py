"""`Trainer.save_checkpoint` of Lightning. With `AsyncCheckpointIO` the file is written in a thread of the first rank: see `lightning_io`."""

from __future__ import annotations

from typing import Any

from ckptbench_probe.engines.calls import argument
from ckptbench_probe.engines.wrapping import of_first_rank, saving
from ckptbench_probe.harmless import harmless
from ckptbench_probe.process import PROCESS
from ckptbench_probe.saves import Save

ASYNCHRONOUS = "AsyncCheckpointIO"


def patch(module: Any) -> None:
    original = module.Trainer.save_checkpoint

    def target(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        path = argument(args, kwargs, 1, "filepath")
        return None if path is None else str(path)

    waits = saving(original, "lightning", target=target, owned=of_first_rank)

    def way(trainer: Any) -> Any:
        if not _is_asynchronous(trainer):
            return waits
        io = (
            trainer.strategy.checkpoint_io if trainer.is_global_zero else None
        )  # others write nothing
        after = io and (lambda save, _: _follow(save, io))
        return saving(original, "lightning.async", target=target, after=after, owned=of_first_rank)

    def save_checkpoint(self: Any, *args: Any, **kwargs: Any) -> Any:
        return (harmless(way)(self) or waits)(self, *args, **kwargs)

    save_checkpoint.__doc__ = original.__doc__
    save_checkpoint.__wrapped__ = original  # type: ignore[attr-defined]
    module.Trainer.save_checkpoint = save_checkpoint


def _follow(save: Save, io: Any) -> None:
    """The state is copied on the thread that steps (Lightning 2.6).

    One thread writes one save after another: it comes to what is handed to it now when this save has ended. `lightning_io` has heard of that before,
    unless the program has an IO of its own, which may fail.
    """
    PROCESS.saves.captured(save)
    executor = getattr(io, "_executor", None)
    if executor is not None:
        executor.submit(lambda: save.finished or PROCESS.saves.finished(save, failed=bool(io._error)))  # fmt: skip


def _is_asynchronous(trainer: Any) -> bool:
    """By its class, or one that it derives from."""
    return any(one.__name__ == ASYNCHRONOUS for one in type(trainer.strategy.checkpoint_io).mro())

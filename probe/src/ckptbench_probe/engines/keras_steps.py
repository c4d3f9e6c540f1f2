"""Steps of `Model.fit`: the end of a batch, before the callbacks hear of it, as one of them may save."""

from __future__ import annotations

from typing import Any

from ckptbench_probe.engines.calls import first
from ckptbench_probe.process import PROCESS


def patch(module: Any) -> None:
    callbacks = module.CallbackList
    callbacks.on_train_batch_end = first(
        callbacks.on_train_batch_end, lambda *_, **__: PROCESS.updates.tick()
    )

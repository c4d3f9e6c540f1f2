"""Steps of `Model.fit`: the end of a batch, before the callbacks hear of it, as one of them may save."""

from __future__ import annotations

import functools
from typing import Any

from ckptbench_probe.harmless import harmless
from ckptbench_probe.process import PROCESS


def patch(module: Any) -> None:
    original = module.CallbackList.on_train_batch_end

    @functools.wraps(original)
    def on_train_batch_end(self: Any, *args: Any, **kwargs: Any) -> Any:
        harmless(PROCESS.updates.tick)()
        return original(self, *args, **kwargs)

    module.CallbackList.on_train_batch_end = on_train_batch_end

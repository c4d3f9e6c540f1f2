"""Updates that a gradient scaler leaves out. A fused optimizer is called all the same, and told to do nothing: its flag is read elsewhere."""

from __future__ import annotations

import functools
from typing import Any

from ckptbench_probe.harmless import harmless
from ckptbench_probe.process import PROCESS


def patch(module: Any) -> None:
    original = module.GradScaler.step
    scale, skip = harmless(PROCESS.updates.scale), harmless(PROCESS.updates.skip)

    @functools.wraps(original)
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        updates = PROCESS.updates
        fired = updates.fired
        scale(True)
        try:
            result = original(self, optimizer, *args, **kwargs)
        finally:
            scale(False)
        if updates.fired == fired:
            skip()
        return result

    module.GradScaler.step = step

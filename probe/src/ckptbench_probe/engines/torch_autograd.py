"""Counts backward passes, so that accumulation is told from steps. A pass within a pass, as of recomputation, is none."""

from __future__ import annotations

import functools
import os
from typing import Any

from ckptbench_probe.process import PROCESS
from ckptbench_probe.variables import CHECK


def patch(module: Any) -> None:
    original = module.backward
    updates = PROCESS.updates
    inside = False

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        if inside:
            return original(*args, **kwargs)
        updates.backwards += 1
        inside = True
        try:
            return original(*args, **kwargs)
        finally:
            inside = False

    def stop() -> None:
        if module.backward is backward:  # else somebody has wrapped it once more
            module.backward = original

    module.backward = backward
    if os.environ.get(CHECK) != "resume":  # which compares the number at each update
        updates.stop_counting = stop

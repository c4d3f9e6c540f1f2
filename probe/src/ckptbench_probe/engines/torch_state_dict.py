"""`get_state_dict` and `set_state_dict` make the slots of a new optimizer by a step with gradients and rates of 0: that is no update."""

from __future__ import annotations

import functools
from typing import Any

from ckptbench_probe.harmless import harmless
from ckptbench_probe.process import PROCESS


def patch(module: Any) -> None:
    original = module._init_optim_state

    @harmless
    def count_by_session(on: bool | None) -> bool:
        """Returns what was before."""
        before, PROCESS.updates.by_session = PROCESS.updates.by_session, bool(on)
        return before

    @functools.wraps(original)
    def prepare(*args: Any, **kwargs: Any) -> Any:
        before = count_by_session(True)
        try:
            return original(*args, **kwargs)
        finally:
            count_by_session(before)

    module._init_optim_state = prepare

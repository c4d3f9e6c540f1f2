"""Updates: the outermost step of any `torch.optim.Optimizer`.

The hooks are registered when the first optimizer is made: that imports Dynamo anyway, which must not trace them.
"""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Any

from ckptbench_probe.harmless import harmless
from ckptbench_probe.process import PROCESS


def patch(module: Any) -> None:
    optimizer = module.Optimizer
    original = optimizer._patch_step_function

    def _patch_step_function(self: Any) -> None:
        optimizer._patch_step_function = original
        harmless(_register)(module)
        original(self)

    optimizer._patch_step_function = _patch_step_function


def _register(module: Any) -> None:
    disable = sys.modules["torch"].compiler.disable
    steps = OutermostSteps(module.Optimizer)
    module.register_optimizer_step_pre_hook(disable(steps.before))
    module.register_optimizer_step_post_hook(disable(steps.after))


class OutermostSteps:
    """A step may call another: of the class it derives from, or of optimizers that it holds."""

    def __init__(self, optimizer: Any) -> None:
        self._depth = 0
        self._updates = PROCESS.updates
        self._step: CodeType = optimizer.profile_hook_step(lambda self: None).__code__

    def before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._depth:  # inside another step, or after one that has raised
            self._depth = self._steps_below(sys._getframe(1))
        self._depth += 1

    def _steps_below(self, frame: FrameType | None) -> int:
        """Steps of the stack, without that which has called the hook."""
        found = -1
        while frame is not None:
            found += frame.f_code is self._step
            frame = frame.f_back
        return max(found, 0)

    def after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._depth -= 1
        if self._depth > 0:
            return
        updates = self._updates
        if updates.of(optimizer) and updates.scaled:
            flag = getattr(optimizer, "found_inf", None)
            if flag is not None:
                updates.flag(flag)

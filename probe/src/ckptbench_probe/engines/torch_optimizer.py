"""Updates: the outermost step of any `torch.optim.Optimizer`.

The hooks are registered when the first optimizer is made: that imports Dynamo anyway, which must not trace them.
"""

from __future__ import annotations

import sys
from time import monotonic_ns
from types import CodeType, FrameType
from typing import Any, Callable

from ckptbench_probe.harmless import harmless
from ckptbench_probe.process import PROCESS
from ckptbench_probe.updates import Updates

Hook = Callable[[Any, Any, Any], None]


def patch(module: Any) -> None:
    optimizer = module.Optimizer
    original = optimizer._patch_step_function

    def _patch_step_function(self: Any) -> None:
        optimizer._patch_step_function = original
        harmless(_register)(module)
        original(self)

    optimizer._patch_step_function = _patch_step_function


def _register(module: Any) -> None:
    before, after = hooks(module.Optimizer)
    hide_from_dynamo(before, after, steps_below)
    module.register_optimizer_step_pre_hook(before)
    module.register_optimizer_step_post_hook(after)


def hooks(optimizer: Any) -> tuple[Hook, Hook]:
    """Before and after a step. They hold no more calls than they must: this is what the probe costs an update.

    A step may call another: of the class it derives from, or of optimizers that it holds. The outermost counts.
    """
    updates = PROCESS.updates
    code: CodeType = optimizer.profile_hook_step(lambda self: None).__code__
    depth = 0

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        nonlocal depth
        if depth:  # inside another step, or after one that has raised
            depth = steps_below(code)
        depth += 1

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        nonlocal depth
        depth -= 1
        if depth > 0:
            return
        if id(optimizer) != updates.plain:
            updates.of(optimizer)
            return
        now = monotonic_ns()
        updates.moments.append(now)
        if now >= updates.due_ns:
            updates.write_due()

    return before, after


def steps_below(code: CodeType) -> int:
    """Steps that the stack holds, without that which has called the hook."""
    frame: FrameType | None = sys._getframe(1)
    found = -1
    while frame is not None:
        found += frame.f_code is code
        frame = frame.f_back
    return max(found, 0)


def hide_from_dynamo(*functions: Any) -> None:
    """Dynamo neither traces nor compiles them. What they call seldom is wrapped, which costs more than an update each time."""
    torch = sys.modules["torch"]
    for function in (*functions, Updates.of, Updates.settle, Updates.tick, Updates._takes_over):
        torch._dynamo.decorators.skip(function)
    updates = PROCESS.updates
    for name in ("write_due", "flag"):
        setattr(updates, name, torch.compiler.disable(getattr(updates, name)))

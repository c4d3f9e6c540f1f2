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
    at_first_optimizer(module, _register)


def at_first_optimizer(module: Any, register: Callable[[Any], None]) -> None:
    """Have `register` called with the module when the first optimizer is made. Who asks later is called earlier."""
    optimizer = module.Optimizer
    original = optimizer._patch_step_function
    register = harmless(register)

    def _patch_step_function(self: Any) -> Any:
        optimizer._patch_step_function = original
        register(module)
        return original(self)

    optimizer._patch_step_function = _patch_step_function


def _register(module: Any) -> None:
    wrap_for_dynamo()
    before, after = hooks(module.Optimizer)
    hide_from_dynamo(before, after)
    module.register_optimizer_step_pre_hook(before)
    module.register_optimizer_step_post_hook(after)


def hooks(optimizer: Any) -> tuple[Hook, Hook]:
    """Before and after a step. They hold no more calls than they must: this is what the probe costs an update.

    A step may call another: of the class it derives from, or of optimizers that it holds. The outermost counts.
    """
    updates = PROCESS.updates
    count, write = harmless(updates.of), harmless(updates.write_due)
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
            count(optimizer)
            return
        now = monotonic_ns()
        updates.moments.append(now)
        if now >= updates.due_ns:
            write()

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
    """Dynamo neither traces nor compiles them."""
    for function in functions:
        sys.modules["torch"]._dynamo.decorators.skip(function)


def wrap_for_dynamo() -> None:
    """What the hooks call: often is hidden, seldom is wrapped, which costs more than an update each time. The fence is one function, whatever it is around."""
    often = Updates.of, Updates.settle, Updates.tick, Updates._takes_over
    hide_from_dynamo(steps_below, harmless(steps_below), *often)
    updates = PROCESS.updates
    for name in ("write_due", "flag"):
        setattr(updates, name, sys.modules["torch"].compiler.disable(getattr(updates, name)))

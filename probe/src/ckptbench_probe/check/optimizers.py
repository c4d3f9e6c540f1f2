"""The optimizers of this process, from their first step on, and hooks around each step."""

from __future__ import annotations

import sys
from typing import Any, Callable

from ckptbench_probe.check.state import Optimizers
from ckptbench_probe.engines.torch_optimizer import at_first_optimizer
from ckptbench_probe.harmless import harmless

SEEN = Optimizers()
Hook = Callable[[Any], None]
_BEFORE: list[Hook] = []
_AFTER: list[Hook] = []


def around_steps(before: Hook, after: Hook) -> None:
    """To be called with the optimizer, of every step of any optimizer, after the hooks that count updates."""
    _BEFORE.append(before)
    _AFTER.append(after)


def patch(module: Any) -> None:
    """The hooks are registered after those of `engines.torch_optimizer`."""
    at_first_optimizer(module, _register)


def _register(module: Any) -> None:
    disable = sys.modules["torch"].compiler.disable
    module.register_optimizer_step_pre_hook(disable(_before))
    module.register_optimizer_step_post_hook(disable(_after))


def _before(optimizer: Any, args: Any, kwargs: Any) -> None:
    harmless(SEEN.add)(optimizer)
    for hook in _BEFORE:
        harmless(hook)(optimizer)


def _after(optimizer: Any, args: Any, kwargs: Any) -> None:
    for hook in _AFTER:
        harmless(hook)(optimizer)

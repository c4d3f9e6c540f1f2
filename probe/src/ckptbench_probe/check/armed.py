"""What `ckptbench-probe check` adds to the processes of a training. The engines wrap what is wrapped here."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from ckptbench_probe.check import optimizers
from ckptbench_probe.engines.calls import Call, Content, Target
from ckptbench_probe.variables import CHECK

CHECKS = {"resume": "recording", "saves": "saving"}
"""Of each value of the variable CHECK, the module here with PATCHES, called with a module that an engine is to wrap, and with `around`."""


def patch(name: str, module: Any) -> None:
    if name == "torch.optim.optimizer":
        optimizers.patch(module)
    hook = _check().PATCHES.get(name)
    if hook is not None:
        hook(module)


def around(original: Call, kind: str, target: Target, content: Content) -> Call:
    """Around a call that writes a file."""
    wrapped: Call = _check().around(original, kind, target, content)
    return wrapped


def _check() -> Any:
    return import_module(f"ckptbench_probe.check.{CHECKS[os.environ[CHECK]]}")

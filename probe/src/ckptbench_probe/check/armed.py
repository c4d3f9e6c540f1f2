"""What `ckptbench-probe check` adds to the processes of a training. The engines wrap what is wrapped here."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from ckptbench_probe.check import optimizers
from ckptbench_probe.variables import CHECK

CHECKS = {"resume": "recording", "saves": "saving"}
"""Of each value of the variable CHECK, the module here whose `patch(name, module)` is called with each module that an engine is to wrap."""


def patch(name: str, module: Any) -> None:
    if name == "torch.optim.optimizer":
        optimizers.patch(module)
    check = import_module(f"ckptbench_probe.check.{CHECKS[os.environ[CHECK]]}")
    check.patch(name, module)

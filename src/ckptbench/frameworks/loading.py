"""Loads a framework's class by its name. Only ranks do so: their environment has the framework's library."""

from __future__ import annotations

import pkgutil

from ckptbench.frameworks.contract import Framework
from ckptbench.matrix.catalogue import FRAMEWORKS


def load_framework(name: str) -> type[Framework]:
    """The class that the registry names. Raises ImportError outside of the framework's environment."""
    framework: type[Framework] = pkgutil.resolve_name(FRAMEWORKS[name].location)
    return framework

"""Loads a strategy's class by its name. Only the ranks use it."""

from __future__ import annotations

import pkgutil

from ckptbench.matrix.catalogue import STRATEGIES
from ckptbench.strategies.contract import Strategy


def load_strategy(name: str) -> type[Strategy]:
    """The class that the registry names. Raises ImportError if a library that it needs is not installed."""
    strategy: type[Strategy] = pkgutil.resolve_name(STRATEGIES[name].location)
    return strategy

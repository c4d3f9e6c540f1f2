"""Loads the two halves of a recovery by its name."""

from __future__ import annotations

import importlib

from ckptbench.matrix.catalogue import RECOVERIES
from ckptbench.recovery.contract import RankRecovery, Recovery


def load_recovery(name: str) -> Recovery:
    """The half that the launcher calls."""
    recovery: Recovery = _load(RECOVERIES[name].launcher)()
    return recovery


def load_rank_recovery(name: str) -> RankRecovery:
    """The half that every rank calls."""
    recovery: RankRecovery = _load(RECOVERIES[name].rank)()
    return recovery


def _load(location: str) -> type:
    module, _, class_name = location.partition(":")
    loaded: type = getattr(importlib.import_module(module), class_name)
    return loaded

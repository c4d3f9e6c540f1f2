"""Loads the two halves of a recovery by its name."""

from __future__ import annotations

import pkgutil

from ckptbench.matrix.catalogue import RECOVERIES
from ckptbench.recovery.contract import RankRecovery, Recovery


def load_recovery(name: str) -> Recovery:
    """The half that the launcher calls."""
    recovery: Recovery = pkgutil.resolve_name(RECOVERIES[name].launcher)()
    return recovery


def load_rank_recovery(name: str) -> RankRecovery:
    """The half that every rank calls."""
    recovery: RankRecovery = pkgutil.resolve_name(RECOVERIES[name].rank)()
    return recovery

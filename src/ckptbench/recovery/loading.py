"""Loads the two halves of a recovery by its name."""

from __future__ import annotations

import pkgutil

from ckptbench.matrix.catalogue import RECOVERIES
from ckptbench.matrix.variant import Variant
from ckptbench.recovery.contract import RankRecovery, Recovery
from ckptbench.world.link import Link
from ckptbench.world.seats import Place


def load_recovery(name: str) -> Recovery:
    """The half that the launcher calls."""
    recovery: Recovery = pkgutil.resolve_name(RECOVERIES[name].launcher)()
    return recovery


def load_rank_recovery(variant: Variant, place: Place, link: Link) -> RankRecovery:
    """The half that every rank calls."""
    entry = RECOVERIES[variant.name]
    recovery: RankRecovery = pkgutil.resolve_name(entry.rank)(
        place, link, variant.chosen(entry.options)
    )
    return recovery

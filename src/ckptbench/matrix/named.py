"""From the text that tables and names of cells have for a strategy, a trace of failures or a recovery back to its options."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ckptbench.matrix.catalogue import STRATEGIES, registered
from ckptbench.matrix.variant import Entry, Variant


def named(text: str, registry: Mapping[str, Entry] = STRATEGIES) -> Variant:
    """The variant that tables name so: the inverse of `str`.

    Raises KeyError if the text begins with no registered name, and ValueError if other options follow it.
    """
    name = registered(text, registry)
    return Variant.read(text, name, registry[name])


def named_or_none(text: str, registry: Mapping[str, Entry]) -> Variant | None:
    """As `named`; None if no variant is named so."""
    try:
        return named(text, registry)
    except (KeyError, ValueError):
        return None


def has_name(text: str, names: Collection[str], registry: Mapping[str, Entry]) -> bool:
    """Whether the text is that of a variant with one of these registered names. A name that begins with another is not that one."""
    try:
        return registered(text, registry) in names
    except KeyError:
        return False

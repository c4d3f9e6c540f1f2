"""From the text that tables and names of cells have for a strategy, a trace of failures or a recovery back to its options."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ckptbench.matrix.plugin_spec import Entry, PluginSpec
from ckptbench.matrix.registry import STRATEGIES, registered


def named(text: str, registry: Mapping[str, Entry] = STRATEGIES) -> PluginSpec:
    """The spec that tables name so: the inverse of `str`.

    Raises KeyError if the text begins with no registered name, and ValueError if other options follow it.
    """
    name = registered(text, registry)
    return PluginSpec.read(text, name, registry[name])


def named_or_none(text: str, registry: Mapping[str, Entry]) -> PluginSpec | None:
    """As `named`; None if no spec is named so."""
    try:
        return named(text, registry)
    except (KeyError, ValueError):
        return None


def has_name(text: str, names: Collection[str], registry: Mapping[str, Entry]) -> bool:
    """Whether the text is that of a spec with one of these registered names. A name that begins with another is not that one."""
    try:
        return registered(text, registry) in names
    except KeyError:
        return False

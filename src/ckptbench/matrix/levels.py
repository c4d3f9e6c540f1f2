"""Levels: the places in which the versions of a run lie, and which checkpoints go to which of them."""

from __future__ import annotations

from ckptbench.common.errors import ConfigError
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.registry import STRATEGIES

MEMORY, NODE, SHARED = "memory", "node", "shared"
LEVELS = (MEMORY, NODE, SHARED)
"""The nearest first: memory of the node, which survives the death of a process; a disk of the node; the folder
`checkpoints.folder` of the config, which survives the loss of a node."""
SETTINGS = {
    MEMORY: "checkpoints.memory_folder",
    NODE: "checkpoints.node_folder",
    SHARED: "checkpoints.folder",
}
"""The setting of the config that says where each level is."""


def levels_of(strategy: PluginSpec) -> dict[str, int]:
    """By level, nearest first: n, if every n-th checkpoint goes there.

    A strategy chooses by options with the names of levels; 0 means never. One without such options writes every
    checkpoint to the shared level. Raises ConfigError if no level takes every checkpoint.
    """
    options = strategy.chosen(STRATEGIES[strategy.name].options)
    every = {level: int(options[level]) for level in LEVELS if level in options}
    if not every:
        return {SHARED: 1}
    if 1 not in every.values():
        raise ConfigError(
            f"strategy {strategy.name}: no level takes every checkpoint: set one of {', '.join(every)} to 1"
        )
    return {level: nth for level, nth in every.items() if nth}

"""Whether there is room for checkpoints: how many a disk holds, and whether host memory holds the copy that an asynchronous save writes from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ckptbench.cli.options import Options
from ckptbench.common.errors import ConfigError
from ckptbench.report.answer.choice import Choice
from ckptbench.report.answer.layout import Block
from ckptbench.report.answer.quantities import size

GPUS_PER_NODE = 8
"""As `decision.gpus_per_node` has it by default."""
FEWEST_KEPT = 2
"""Whole versions: the newest may be damaged, or half written where the commit is not atomic."""
Copying = tuple[str, bool, float | None]
"""A strategy: its name, whether training goes on while it writes, and bytes of a checkpoint."""
NO_SIZE = "--{}: nothing says how large a checkpoint is: give --state 98GB or --params 7B"


def to_keep(disk: float, of_each: float | None) -> int | None:
    """The most whole versions that may stay, as one more is written before the oldest goes. None where that are too few."""
    most = 0 if of_each is None else int(disk // of_each) - 1
    return most if most >= FEWEST_KEPT else None


def on_disk(disk: float, choices: Sequence[Choice]) -> Iterator[str]:
    """A sentence for each size of a checkpoint. Raises ConfigError where none is known."""
    sizes = {each.bytes: each.name for each in choices if each.bytes is not None}
    if choices and not sizes:
        raise ConfigError(NO_SIZE.format("disk"))
    for of_each, name in sizes.items():
        whose = f" of {name}" if len(sizes) > 1 else ""
        fit, keep = int(disk // of_each), to_keep(disk, of_each)
        held = f"{size(disk)} holds {fit:,} checkpoint{'s' * (fit != 1)}{whose} of {size(of_each)}"
        if keep is None:
            needs = size((FEWEST_KEPT + 1) * of_each)
            yield f"Do not train with so little room: {held}. Two whole ones and the one that is being written need {needs}."
        else:
            often = f"{FEWEST_KEPT} to {keep:,}" if keep > FEWEST_KEPT else f"{keep}"
            yield f"{held}: keep {often}, as one more is written before the oldest goes."


def without_memory(
    saves: Iterable[Copying], memory: float | None, shards: int
) -> tuple[frozenset[str], tuple[str, ...]]:
    """The asynchronous strategies whose copy does not fit into the memory of a node, and sentences on all copies. `shards`: GPUs that together hold one copy of the state.

    Raises ConfigError where none is left, or where a size is not known.
    """
    if memory is None:
        return frozenset(), ()
    every, refused, told = set(), set(), []
    for name, is_async, of_each in dict.fromkeys(saves):
        every.add(name)
        if not is_async:
            continue
        if of_each is None:
            raise ConfigError(NO_SIZE.format("memory"))
        copy = of_each * min(GPUS_PER_NODE, shards) / shards
        where = f"{name}: an asynchronous save keeps a copy of {size(copy)} in the memory of a node ({GPUS_PER_NODE} GPUs)"
        twice = "twice if it is pinned and a separate process writes"
        if copy > memory:
            refused.add(name)
            told.append(f"Do not use {where}, and {size(memory)} are free: left out.")
        elif 2 * copy > memory:
            told.append(f"{where}, {twice}, which {size(memory)} do not hold: write from a thread.")
        else:
            told.append(f"{where}, {twice}: {size(memory)} hold it.")
    if refused and every == refused:
        raise ConfigError(f"--memory: no strategy fits: {' '.join(told)} Save without a copy (--blocking), or shard the state across more GPUs")  # fmt: skip
    return frozenset(refused), tuple(told)


def sized(blocks: Sequence[Block], options: Options) -> list[Block]:
    """With the size that the options say, where they say one."""
    if options.size is None:
        return [*blocks]
    return [
        replace(block, choices=tuple(replace(each, bytes=options.size) for each in block.choices))
        for block in blocks
    ]

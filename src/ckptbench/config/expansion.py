"""The expansion of a config into cells, in the order in which they are to run."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ckptbench.common.errors import ConfigError
from ckptbench.config.feasible import (
    check_accumulation,
    check_dataset,
    check_length,
    check_objects,
    check_omission,
    check_victims,
)
from ckptbench.config.reading import FieldError
from ckptbench.config.study import Addition, Matrix, Selection, StudyConfig
from ckptbench.config.values import NAME_BYTES
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.interval import NEVER, Interval
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.registry import KILLED, NATIVE, NO_FORMAT, formats_of
from ckptbench.matrix.shown import show

AXES = tuple(Matrix.model_fields)
MOST_COMBINATIONS = 100_000
"""Combinations of the lists of a config. More take too long to look at."""
MOST_NAME = NAME_BYTES - len("-01234567-memory")
"""Characters of a name of a run, to which those of its folders at local tiers append as much."""
MOST_CELLS = 10_000
"""Runs of a study. With more of them the workflow takes minutes to start."""


def expand(config: StudyConfig) -> list[Cell]:
    """Every cell of the study once, each with what it is compared with, in the order to run them.

    Raises ConfigError where an entry of `exclude` matches nothing, a value of an axis fits no cell, nothing is left,
    there are more than MOST_COMBINATIONS combinations or MOST_CELLS cells, a name of a cell cannot be that of its files, or a cell
    cannot write to the object store.
    """
    _check_combinations(config)
    repeats = _first_repeat(config)
    in_a_repeat = len(list(_run_order(repeats)))
    if (count := in_a_repeat * config.repeats) > MOST_CELLS:
        raise FieldError(
            ("repeats",),
            f"the study has {count:,} cells ({in_a_repeat:,} a repeat), and at most {MOST_CELLS:,} are allowed: use fewer "
            "repeats, or shorten the lists of matrix",
            config.repeats,
        )
    cells = list(
        dict.fromkeys(
            cell
            for most in sorted({*repeats.values()}, reverse=True)
            for cell in _run_order(_repeated(repeats, most))
        )
    )
    _check_names(cells)
    for cell in cells:
        check_objects(cell, config)
    return cells


def _repeated(repeats: Mapping[Cell, int], most: int) -> Iterator[Cell]:
    """The repeats of the cells that have so many."""
    for cell, count in repeats.items():
        if count == most:
            yield from (dataclasses.replace(cell, repeat=repeat) for repeat in range(most))


def _check_names(cells: Iterable[Cell]) -> None:
    """Raises FieldError where the name of a run is too long for its files."""
    longest = max((cell.id for cell in cells), key=len)
    if len(longest) > MOST_NAME:
        raise FieldError(
            ("matrix",),
            f"the name of a run would have {len(longest)} characters, of {MOST_NAME} that the names of its files can have: "
            f"use a shorter name of a list of failures, or numbers with fewer digits ({show(longest)})",
        )


def _first_repeat(config: StudyConfig) -> dict[Cell, int]:
    """The cells that the config names, with repeat 0, and how many repeats each has."""
    cells = dict.fromkeys(product_of(config), config.repeats)
    for index, selection in enumerate(config.exclude):
        matching = [cell for cell in cells if matches(cell, selection)]
        if not matching:
            words = (
                "no cell matches it (a strategy matches with all its options): correct or remove it"
            )
            raise FieldError(("exclude", index), words)
        for cell in matching:
            del cells[cell]
    for index, addition in enumerate(config.include):
        count = min(addition.repeats or config.repeats, config.repeats)
        for cell in added_by(config, index, addition):
            cells[cell] = max(count, cells.get(cell, 0))
    if not cells:
        raise FieldError(("exclude",), "the matrix is empty: exclude drops every cell; drop fewer")
    if not config.training.proof and any(cell.is_compared for cell in cells):
        raise FieldError(
            ("training", "proof"),
            "runs with history rerun or killed faults are there to be compared, so set it to true",
            config.training.proof,
        )
    for cell in cells:
        check_length(cell, config)
    return cells


def _check_combinations(config: StudyConfig) -> None:
    """Raises FieldError where the lists give more than MOST_COMBINATIONS. None of them is made for that."""
    sections = {("matrix",): config.matrix} | {
        ("include", index): entry for index, entry in enumerate(config.include)
    }
    for location, section in sections.items():
        lists = {axis: len(getattr(section, axis) or [None]) for axis in AXES}
        if (number := math.prod(lists.values())) > MOST_COMBINATIONS:
            longest = " x ".join(f"{axis} {count}" for axis, count in lists.items() if count > 1)
            raise FieldError(
                location,
                f"its lists give {number:,} combinations ({longest}), and at most {MOST_COMBINATIONS:,} are allowed; "
                "shorten the lists",
            )


def product_of(config: StudyConfig) -> list[Cell]:
    """The cells of the matrix with repeat 0, before `exclude`. Raises ConfigError where a value fits none."""
    axes = _values(config.matrix)
    cells, impossible = _possible(config, axes)
    if not cells:
        raise ConfigError(f"the matrix is empty: {impossible[0][1]}")
    for axis in (
        "model",
        "optimizer",
        "precision",
        "format",
        "strategy",
        "history",
        "faults",
        "recovery",
        "omit",
        "cache",
    ):
        held = {getattr(cell, axis) for cell in cells} | {"default"}
        for index, value in enumerate(axes[axis]):
            if value not in held:
                reason = next(
                    (str(error) for fields, error in impossible if fields[axis] == value),
                    "its runs equal those of other values, as none of them saves: add an interval other than never",
                )
                words = f"no cell of the matrix allows it: {reason}"
                raise FieldError(("matrix", axis, index), words, value)
    return cells


def _values(matrix: Matrix) -> dict[str, list[Any]]:
    return {axis: getattr(matrix, axis) for axis in AXES} | {"framework": matrix.frameworks}


def _possible(
    config: StudyConfig, axes: Mapping[str, Sequence[object]]
) -> tuple[list[Cell], list[tuple[dict[str, object], ConfigError]]]:
    """The possible cells of the product of the axes, and for each other combination why it is impossible."""
    cells: list[Cell] = []
    impossible = []
    for values in itertools.product(*axes.values()):
        fields = dict(zip(axes, values, strict=True))
        try:
            cells.append(_cell(config, fields))
        except ConfigError as error:
            impossible.append((fields, error))
    return cells, impossible


def added_by(config: StudyConfig, index: int, addition: Addition) -> list[Cell]:
    """The cells of one entry of `include`, with repeat 0. Raises ConfigError where it has none."""
    axes = {
        axis: values[:1] if (own := getattr(addition, axis)) is None else own
        for axis, values in _values(config.matrix).items()
    }
    never = [str(NEVER)]
    killed = any(each.name in KILLED for each in addition.faults or ())
    if addition.interval is None and (
        addition.format or addition.strategy or addition.history or killed
    ):
        # A baseline has no format, no strategy and nothing to restart from: who names one wants checkpoints.
        axes["interval"] = [i for i in config.matrix.interval if i != str(NEVER)][:1] or never
    if addition.format is not None and axes["interval"] == never:
        raise FieldError(
            ("include", index),
            "it names a format and no interval to write it at: add one, as in interval: 1",
        )
    cells, impossible = _possible(config, axes)
    if not cells:
        raise FieldError(("include", index), str(impossible[0][1]))
    return cells


def _cell(config: StudyConfig, fields: dict[str, object]) -> Cell:
    interval = Interval.parse(str(fields["interval"]))
    format = str(fields["format"])
    strategy = fields["strategy"]
    assert isinstance(strategy, PluginSpec)
    if interval == NEVER:
        format, strategy = NO_FORMAT, NATIVE
    elif format == "default":
        format = formats_of(str(fields["framework"]), strategy.name)[0]
    plain = {
        **fields,
        "interval": interval,
        "format": format,
        "strategy": strategy,
        "accelerator": config.accelerator,
    }
    cell = Cell(**plain)  # type: ignore[arg-type]
    check_dataset(cell, config)
    check_omission(cell, config)
    check_accumulation(cell, config)
    check_victims(cell, config)
    return cell


def matches(cell: Cell, selection: Selection) -> bool:
    """Whether the selection takes the cell."""
    for axis in AXES:
        allowed = getattr(selection, axis)
        if allowed is None:
            continue
        value = getattr(cell, axis)
        named = {str(value)} if axis == "interval" else {value}
        if axis == "format" and cell.format == formats_of(cell.framework, cell.strategy.name)[0]:
            named.add("default")
        if named.isdisjoint(allowed):
            return False
    return True


def _run_order(cells: Iterable[Cell]) -> Iterator[Cell]:
    """The cells repeat after repeat, odd repeats backwards: a machine that changes so weighs on both sides alike."""
    groups: dict[Cell, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.baseline, []).append(cell)
    repeats: dict[int, list[tuple[Cell, list[Cell]]]] = {}
    for baseline, group in groups.items():
        repeats.setdefault(baseline.repeat, []).append((baseline, group))
    for repeat, forwards in sorted(repeats.items()):
        for baseline, group in forwards if repeat % 2 == 0 else reversed(forwards):
            yield from _side_by_side(baseline, group)


def _side_by_side(baseline: Cell, group: list[Cell]) -> Iterator[Cell]:
    """Cells with what they are compared with: the baseline, which all uninterrupted cells need, comes first in even
    repeats and last in odd ones, the uninterrupted run before those that are held against it.
    """
    timed = not all(cell.is_compared for cell in group)
    if timed and baseline.repeat % 2 == 0:
        yield baseline
    yield from dict.fromkeys(
        part
        for cell in group
        for part in (cell.reference, cell)
        if not (part.is_baseline and part.is_undisturbed)
    )
    if timed and baseline.repeat % 2 == 1:
        yield baseline

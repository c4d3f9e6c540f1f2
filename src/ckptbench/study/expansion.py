"""The expansion of a config into cells, in the order in which they are to run."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ckptbench.errors import ConfigError
from ckptbench.matrix.catalogue import KILLED, NATIVE, NO_FORMAT, formats_of
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.interval import NEVER, Interval
from ckptbench.matrix.shown import show
from ckptbench.matrix.variant import Variant
from ckptbench.settings.sources import FieldError, raise_all
from ckptbench.settings.values import NAME_BYTES
from ckptbench.study.config import Addition, Matrix, Selection, StudyConfig
from ckptbench.study.feasible import check_image, check_length, check_omission, check_victims

AXES = tuple(Matrix.model_fields)
MOST_COMBINATIONS = 100_000
"""Combinations of the lists of a config. More take too long to look at."""
MOST_NAME = NAME_BYTES - len("-01234567-memory")
"""Characters of a name of a run, to which those of its folders at near levels append as much."""
MOST_CELLS = 10_000
"""Runs of a study. With more of them the workflow takes minutes to start."""


def expand(config: StudyConfig) -> list[Cell]:
    """Every cell of the study once, each with what it is compared with, in the order to run them.

    Raises ConfigError where an entry of `exclude` matches nothing, a value of an axis fits no cell, nothing is left,
    there are more than MOST_COMBINATIONS combinations or MOST_CELLS cells, or a name of a cell cannot be that of its files.
    """
    raise_all(_format_faults(config.matrix))
    _check_combinations(config)
    first = _first_repeat(config)
    _check_cells(config, len(list(_run_order(first))))
    cells = list(
        _run_order(
            dataclasses.replace(cell, repeat=repeat)
            for cell in first
            for repeat in range(config.repeats)
        )
    )
    _check_names(cells)
    return cells


def _check_names(cells: Iterable[Cell]) -> None:
    """Raises FieldError where the name of a run is too long for its files."""
    longest = max((cell.id for cell in cells), key=len)
    if len(longest) > MOST_NAME:
        raise FieldError(
            ("matrix",),
            f"the name of a run would have {len(longest)} characters, of {MOST_NAME} that the names of its files can have: "
            f"use a shorter name of a list of failures, or numbers with fewer digits ({show(longest)})",
        )


def _first_repeat(config: StudyConfig) -> list[Cell]:
    """The cells that the config names, with repeat 0."""
    cells = dict.fromkeys(product_of(config))
    unmatched = []
    for index, selection in enumerate(config.exclude):
        matching = [cell for cell in cells if matches(cell, selection)]
        if not matching:
            words = f"no cell matches it: {_meant(cells, selection)}correct or remove it"
            unmatched.append(FieldError(("exclude", index), words))
        for cell in matching:
            del cells[cell]
    raise_all(unmatched)
    cells |= dict.fromkeys(cell for each in _all_added(config) for cell in each)
    if not cells:
        raise FieldError(("exclude",), "the matrix is empty: exclude leaves no cell; drop less")
    if not config.training.proof and any(cell.is_compared for cell in cells):
        raise FieldError(
            ("training", "proof"),
            "runs with history again or killed faults are there to be compared, so set it to true",
            config.training.proof,
        )
    for cell in cells:
        check_length(cell, config)
    return list(cells)


def _meant(cells: Iterable[Cell], selection: Selection) -> str:
    """Words on the strategies that the selection names with other options than the cells have; empty if there are none."""
    named = {each.name for each in selection.strategy or ()} - {NATIVE.name}
    others = sorted({cell.strategy for cell in cells if cell.strategy.name in named})
    unnamed = [each for each in others if each not in (selection.strategy or ())]
    if not unnamed:
        return ""
    return f"a strategy is matched with all its options, so name it as {' or '.join(map(_in_yaml, unnamed))}; "


def _in_yaml(strategy: Variant) -> str:
    """The strategy as a config names it."""
    if not strategy.options:
        return strategy.name
    options = ", ".join(f"{option}: {show(value)}" for option, value in strategy.options)
    return f"{{{strategy.name}: {{{options}}}}}"


def _check_combinations(config: StudyConfig) -> None:
    """Raises FieldError where the lists give more than MOST_COMBINATIONS. None of them is made for that."""
    total = 0
    for location, axes in [
        (("matrix",), _axes(config.matrix)),
        *((("include", index), _axes(entry)) for index, entry in enumerate(config.include)),
    ]:
        number = math.prod(map(len, axes.values()))
        total += number
        if total > MOST_COMBINATIONS:
            lists = " x ".join(f"{axis} {len(values)}" for axis, values in axes.items())
            raise FieldError(
                location,
                f"its lists give {number:,} combinations ({lists}): at most {MOST_COMBINATIONS:,} are allowed "
                "in all; shorten the lists",
            )


def _axes(section: Matrix | Addition) -> dict[str, list[object]]:
    """The lists of more than one value."""
    lists = {axis: getattr(section, axis) or [] for axis in AXES}
    return {axis: values for axis, values in lists.items() if len(values) > 1}


def _check_cells(config: StudyConfig, in_a_repeat: int) -> None:
    """Raises FieldError where the study has more than MOST_CELLS."""
    count = in_a_repeat * config.repeats
    if count <= MOST_CELLS:
        return
    found = f"the study has {count:,} cells ({in_a_repeat:,} a repeat), and at most {MOST_CELLS:,} are allowed"
    if in_a_repeat > MOST_CELLS:
        raise FieldError(("matrix",), f"{found}: shorten its lists")
    raise FieldError(("repeats",), f"{found}: use fewer repeats", config.repeats)


def product_of(config: StudyConfig) -> list[Cell]:
    """The cells of the matrix with repeat 0, before `exclude`. Raises ConfigError where a value fits none."""
    axes = {axis: getattr(config.matrix, axis) for axis in AXES}
    cells, impossible = _possible(config, axes)
    if not cells:
        raise ConfigError(f"the matrix is empty: {impossible[0][1]}")
    faults = []
    for axis in ("model", "strategy", "history", "faults", "recovery", "omit", "cache"):
        held = {getattr(cell, axis) for cell in cells}
        for index, value in enumerate(axes[axis]):
            if value not in held:
                reason = next(
                    (str(error) for fields, error in impossible if fields[axis] == value),
                    "its runs are those of other values, as none of them saves: add an interval other than never",
                )
                words = f"no cell of the matrix can have it: {reason}"
                faults.append(FieldError(("matrix", axis, index), words, value))
    raise_all(faults)
    return cells


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


def _all_added(config: StudyConfig) -> list[list[Cell]]:
    """The cells of each entry of `include`."""
    added: list[list[Cell]] = []
    faults: list[ConfigError] = []
    for index, addition in enumerate(config.include):
        try:
            added.append(added_by(config, index, addition))
        except ConfigError as error:
            faults.append(error)
    raise_all(faults)
    return added


def added_by(config: StudyConfig, index: int, addition: Addition) -> list[Cell]:
    """The cells of one entry of `include`, with repeat 0. Raises ConfigError where it has none."""
    axes = {
        axis: getattr(config.matrix, axis)[:1] if values is None else values
        for axis in AXES
        for values in [getattr(addition, axis)]
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
    assert isinstance(strategy, Variant)
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
    check_image(cell, config)
    check_omission(cell, config)
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


def _format_faults(matrix: Matrix) -> Iterator[FieldError]:
    """Formats that nothing of the matrix writes."""
    for index, format in enumerate(matrix.format):
        written = dict.fromkeys(
            each
            for framework in matrix.framework
            for strategy in matrix.strategy
            for each in formats_of(framework, strategy.name)
        )
        if format not in ("default", *written):
            yield FieldError(
                ("matrix", "format", index),
                f"no framework of the matrix ({', '.join(matrix.framework)}) writes it{_with(matrix.strategy)}: "
                f"use {', '.join(written)}",
                format,
            )


def _with(strategies: Sequence[Variant]) -> str:
    if list(strategies) == [NATIVE]:
        return ""
    return f" with the strategies {', '.join(map(str, strategies))}"


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

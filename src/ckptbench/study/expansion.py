"""The expansion of a config into cells, in the order in which they are to run."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ckptbench.errors import ConfigError
from ckptbench.matrix.catalogue import FRAMEWORKS, NO_FORMAT, WHOLE
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.interval import NEVER, Interval
from ckptbench.study.config import Addition, Matrix, Selection, StudyConfig
from ckptbench.study.feasible import check_length, check_omission

AXES = tuple(Matrix.model_fields)


def expand(config: StudyConfig) -> list[Cell]:
    """Every cell of the study once, each with what it is compared with, in the order to run them.

    Raises ConfigError where an entry of `exclude` matches nothing, a value of an axis fits no cell, or nothing is left.
    """
    _check_formats(config.matrix)
    cells = dict.fromkeys(_product(config))
    for index, selection in enumerate(config.exclude):
        matching = [cell for cell in cells if _matches(cell, selection)]
        if not matching:
            raise ConfigError(f"exclude[{index}] matches no cell: correct or remove it")
        for cell in matching:
            del cells[cell]
    cells |= dict.fromkeys(
        cell
        for index, addition in enumerate(config.include)
        for cell in _added(config, index, addition)
    )
    if not cells:
        raise ConfigError("the matrix is empty: exclude leaves no cell")
    if not config.training.proof and any(cell.history != WHOLE for cell in cells):
        raise ConfigError(
            "training.proof is false: runs with a history are there to be compared, so set it to true"
        )
    for cell in cells:
        check_length(cell, config.training)
    return list(_run_order(cells))


def _product(config: StudyConfig) -> list[Cell]:
    axes = {axis: getattr(config.matrix, axis) for axis in AXES}
    cells, impossible = _possible(config, axes)
    if not cells:
        raise ConfigError(f"the matrix is empty: {impossible[0][1]}")
    for axis in ("history", "omit", "cache"):
        for index, value in enumerate(axes[axis]):
            if all(getattr(cell, axis) != value for cell in cells):
                reason = next(error for fields, error in impossible if fields[axis] == value)
                raise ConfigError(
                    f"matrix.{axis}[{index}] is {value!r}, and no cell of the matrix can have it: {reason}"
                )
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
            cells += _repeats(config, fields)
        except ConfigError as error:
            impossible.append((fields, error))
    return cells, impossible


def _added(config: StudyConfig, index: int, addition: Addition) -> list[Cell]:
    axes = {
        axis: getattr(config.matrix, axis)[:1] if values is None else values
        for axis in AXES
        for values in [getattr(addition, axis)]
    }
    never = [str(NEVER)]
    if addition.interval is None and (addition.format or addition.history):
        # A baseline has no format and nothing to restart from: who names one wants checkpoints.
        axes["interval"] = [i for i in config.matrix.interval if i != str(NEVER)][:1] or never
    if addition.format is not None and axes["interval"] == never:
        raise ConfigError(
            f"include[{index}] names a format and no interval to write it at: add one, as in interval: 1"
        )
    cells, impossible = _possible(config, axes)
    if not cells:
        raise ConfigError(f"include[{index}]: {impossible[0][1]}")
    return cells


def _repeats(config: StudyConfig, fields: dict[str, object]) -> list[Cell]:
    interval = Interval.parse(str(fields["interval"]))
    format = str(fields["format"])
    if interval == NEVER:
        format = NO_FORMAT
    elif format == "default":
        format = FRAMEWORKS[str(fields["framework"])].formats[0]
    plain = {**fields, "interval": interval, "format": format, "accelerator": config.accelerator}
    cells = [Cell(**plain, repeat=repeat) for repeat in range(config.repeats)]  # type: ignore[arg-type]
    check_omission(cells[0], config.training)
    return cells


def _matches(cell: Cell, selection: Selection) -> bool:
    for axis in AXES:
        allowed = getattr(selection, axis)
        if allowed is None:
            continue
        value = getattr(cell, axis)
        named = {str(value)} if axis == "interval" else {value}
        if axis == "format" and cell.format == FRAMEWORKS[cell.framework].formats[0]:
            named.add("default")
        if named.isdisjoint(allowed):
            return False
    return True


def _check_formats(matrix: Matrix) -> None:
    for index, format in enumerate(matrix.format):
        if format != "default" and not any(
            format in FRAMEWORKS[framework].formats for framework in matrix.framework
        ):
            raise ConfigError(
                f"matrix.format[{index}] is {format!r}: none of the frameworks "
                f"{', '.join(matrix.framework)} writes it"
            )


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
    timed = any(cell.history == WHOLE for cell in group)
    if timed and baseline.repeat % 2 == 0:
        yield baseline
    yield from dict.fromkeys(
        part for cell in group for part in (cell.reference, cell) if not part.is_baseline
    )
    if timed and baseline.repeat % 2 == 1:
        yield baseline

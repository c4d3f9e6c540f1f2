"""The expansion of a config into cells, in the order in which they are to run."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from ckptbench.cells import NEVER, NO_FORMAT, Cell, Interval
from ckptbench.config import Addition, Matrix, Selection, StudyConfig
from ckptbench.errors import ConfigError
from ckptbench.frameworks import FRAMEWORKS

AXES = tuple(Matrix.model_fields)


def expand(config: StudyConfig) -> list[Cell]:
    """Every cell of the study once, each with its baseline, in the order to run them.

    Raises ConfigError where an entry of `exclude` matches nothing, a format fits no framework, or nothing is left.
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
    return list(_run_order(cells))


def _product(config: StudyConfig) -> Iterator[Cell]:
    matrix = config.matrix
    for values in itertools.product(*(getattr(matrix, axis) for axis in AXES)):
        fields = dict(zip(AXES, values, strict=True))
        if fields["format"] in ("default", *FRAMEWORKS[fields["framework"]].formats):
            yield from _repeats(config, fields)


def _added(config: StudyConfig, index: int, addition: Addition) -> Iterator[Cell]:
    fields = {
        axis: getattr(config.matrix, axis)[0] if value is None else value
        for axis in AXES
        for value in [getattr(addition, axis)]
    }
    if addition.interval is None and addition.format is not None:
        # A baseline has no format: who names one wants checkpoints.
        fields["interval"] = next((i for i in config.matrix.interval if i != str(NEVER)), None)
    if addition.format is not None and fields["interval"] in (None, str(NEVER)):
        raise ConfigError(
            f"include[{index}] names a format and no interval to write it at: add one, as in interval: 1"
        )
    try:
        yield from _repeats(config, fields)
    except ConfigError as error:
        raise ConfigError(f"include[{index}]: {error}") from error


def _repeats(config: StudyConfig, fields: dict[str, object]) -> Iterator[Cell]:
    interval = Interval.parse(str(fields["interval"]))
    format = str(fields["format"])
    if interval == NEVER:
        format = NO_FORMAT
    elif format == "default":
        format = FRAMEWORKS[str(fields["framework"])].formats[0]
    plain = {**fields, "interval": interval, "format": format, "accelerator": config.accelerator}
    for repeat in range(config.repeats):
        yield Cell(**plain, repeat=repeat)  # type: ignore[arg-type]


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
    """Repeat after repeat, each baseline beside its cells: first in even repeats, last in odd ones.

    A machine that gets slower or faster in the meantime so weighs on both sides of a comparison.
    """
    groups: dict[Cell, list[Cell]] = {}
    for cell in cells:
        group = groups.setdefault(cell.baseline, [])
        if not cell.is_baseline:
            group.append(cell)
    for baseline, group in sorted(groups.items(), key=lambda item: item[0].repeat):
        yield from [baseline, *group] if baseline.repeat % 2 == 0 else [*group, baseline]

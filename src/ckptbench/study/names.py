"""Whether the files of every cell can have its name: a wrong one is refused when the study is planned."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ckptbench.matrix.catalogue import RECOVERIES, RESTART
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.levels import SHARED, levels_of
from ckptbench.matrix.named import named_or_none
from ckptbench.matrix.shown import show
from ckptbench.matrix.variant import NAME, Variant
from ckptbench.settings.sources import FieldError, Location
from ckptbench.settings.values import NAME_BYTES
from ckptbench.study.config import StudyConfig

LOG = ".log"
NEAR = "-01234567-{}"
"""What is appended to the name of a cell in the name of its log, and in that of its folder at a near level."""


def check_names(cells: Iterable[Cell], config: StudyConfig) -> None:
    """Raises FieldError where the name of a cell is that of another cell, has characters that the workflow does not
    take, or is too long for the names of its files.
    """
    known: dict[str, Cell] = {}
    for cell in cells:
        if (other := known.setdefault(cell.id, cell)) != cell:
            raise FieldError(
                ("matrix",),
                f"two different runs have the name {cell.id}: rename one of "
                f"{', '.join(f'{ours} and {theirs}' for ours, theirs in _differences(cell, other))}",
            )
        if not re.fullmatch(NAME, cell.id):
            raise FieldError(
                ("matrix",),
                f"a run has the name {show(cell.id)}, which is not of letters (a-z, A-Z), digits, _, . and -: "
                "rename the part with another character",
            )
        _check_end(cell, config)
        _check_length(cell, config)


def _differences(cell: Cell, other: Cell) -> list[tuple[object, object]]:
    ours, theirs = cell.to_json(), other.to_json()
    return [(ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]]


def _check_end(cell: Cell, config: StudyConfig) -> None:
    """Raises FieldError where a list of failures is called `a-ulfm`: the list `a` with the recovery `ulfm` would give the same name."""
    parts = str(cell.faults).split("-")
    for tail in ("-".join(parts[place:]) for place in range(1, len(parts))):
        if named_or_none(tail, RECOVERIES) not in (None, RESTART):
            raise FieldError(
                _place(config, "faults", cell.faults),
                f"the end of this name, {tail}, is also that of a recovery, so its runs could be taken for those of another list "
                "with that recovery: rename the list",
                cell.faults.to_json(),
            )


def _check_length(cell: Cell, config: StudyConfig) -> None:
    near = [NEAR.format(level) for level in levels_of(cell.strategy) if level != SHARED]
    most = NAME_BYTES - max(map(len, (LOG, *near)))
    if len(cell.id) <= most:
        return
    variants = {field: getattr(cell, field) for field in ("strategy", "faults", "recovery")}
    field = max(variants, key=lambda field: len(str(variants[field])))
    raise FieldError(
        _place(config, field, variants[field]),
        f"the name of a run with it has {len(cell.id)} characters, of {most} that the names of its files can have: "
        "use a shorter text, or numbers with fewer digits",
        variants[field].to_json(),
    )


def _place(config: StudyConfig, field: str, value: Variant) -> Location:
    """Where the config has this value."""
    sections = {("matrix",): config.matrix} | {
        ("include", index): entry for index, entry in enumerate(config.include)
    }
    for location, section in sections.items():
        values = getattr(section, field) or []
        if value in values:
            return (*location, field, values.index(value))
    return ("matrix", field)

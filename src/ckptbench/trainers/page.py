"""The table of trainers as a part of a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptbench.config.trainers import COLUMNS
from ckptbench.trainers.cell import CANNOT_TELL, DOES_NOT_APPLY, MEASURED, NO, YES
from ckptbench.trainers.table import Line, ordered

SIGNS = {YES: "✓", NO: "**✗**", CANNOT_TELL: "?", DOES_NOT_APPLY: "-"}


def document(table: Sequence[Line]) -> str:
    """The scoreboard, what is promised where it says no, and what was measured with."""
    if not table:
        return "Not measured yet.\n"
    return "\n".join([*_scores(table), "", *_promises(table), *_versions(table)]) + "\n"


def _scores(table: Sequence[Line]) -> Iterator[str]:
    rows = ordered(table)
    columns = [name for name in COLUMNS if any(name in row for row in rows.values())]
    yield _line("trainer", *(COLUMNS[name] for name in columns))
    yield _line(*["---"] * (1 + len(columns)))
    for row in rows.values():
        yield _line(next(iter(row.values())).title, *(_sign(row.get(name)) for name in columns))


def _sign(line: Line | None) -> str:
    if line is None:
        return ""
    return _cost(line) if line.verdict == MEASURED else SIGNS[line.verdict]


def _cost(line: Line) -> str:
    """Of one save: the stall, and the bytes of its files against those of the state."""
    parts = [f"{line.stall_s * 1e3:.0f} ms"] if line.stall_s is not None else []
    if line.file_bytes and line.state_bytes:
        parts.append(f"{line.file_bytes / line.state_bytes:.1f} states")
    return ", ".join(parts)


def _promises(table: Sequence[Line]) -> Iterator[str]:
    """Of each trainer with a no: what its documentation says of these columns."""
    yield _line("promised where the answer is no", "by")
    yield _line("---", "---")
    found: dict[str, list[str]] = {}
    for row in ordered(table).values():
        for line in row.values():
            if line.verdict == NO and line.promise:
                by = found.setdefault(f"[{line.promise}]({line.source})", [])
                by += [line.title] * (line.title not in by)
    yield from (_line(promise, "; ".join(titles)) for promise, titles in found.items())
    yield ""


def _versions(table: Sequence[Line]) -> Iterator[str]:
    """Of trainers: controls have those of one of them."""
    dates = sorted({line.date for line in table})
    by_versions: dict[str, list[str]] = {}
    for row in ordered(table).values():
        line = next(iter(row.values()))
        if line.control:
            continue
        by_versions.setdefault(line.versions, []).append(line.title)
    yield _line(f"versions on {' to '.join(dict.fromkeys((dates[0], dates[-1])))}", "trainers")
    yield _line("---", "---")
    yield from (_line(versions, "; ".join(titles)) for versions, titles in by_versions.items())


def _line(*cells: str) -> str:
    texts = (text.replace("|", "\\|").replace("<", "&lt;") for text in cells)
    return f"|{'|'.join(texts)}|"

"""The training loss of runs that failures struck, against time, beside that of the undisturbed run of the same seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ckptbench.analysis.cost.aftermath import FAILURE, STRUCK, UNDISTURBED
from ckptbench.answer import labels
from ckptbench.answer.setups import (
    CHECKPOINT,
    SYSTEM,
    faceted,
    labelled,
    ordered,
    with_hardware,
)
from ckptbench.figures.kit.captions import caption, wrapped
from ckptbench.figures.kit.panels import (
    BOLD,
    LABEL_IN,
    LINE_IN,
    PANEL_EDGES_IN,
    PaperFigure,
    folded,
    legend,
    nothing_to_show,
)
from ckptbench.figures.kit.style import (
    COLUMN_IN,
    INK,
    LINE_STYLES,
    PAGE_IN,
    SOLID,
    LineStyle,
    look,
)

READING = (
    "Mean loss of the last {window} steps on one rank, against the time since training began. Thick: {undisturbed}, thin: struck by failures,"
    " which the marks below show{rows}; a gap is time without a step. Steps that are done again show their loss again. Of each setup"
    " the repeat with the most failures"
)
OWN = "the undisturbed run of each recovery"
ROWS = ", a row for each recovery in the order of the legend, the first lowest"
TOGETHER = 2
"""How many recoveries share a panel at most, and only where they share the undisturbed run."""
ACROSS, APART_ACROSS = 2, 5
"""How many panels stand side by side: of several recoveries each, and at most of one each."""
AXIS_IN = 0.4
"""Width that the labels of an axis take."""
TITLE_OVER = 2
"""How many panels a title may be wide. The layout would make room for a wider one, as its middle is outside its own panel."""
ROW = (*CHECKPOINT, "history")
LINES = ((UNDISTURBED, 3.5, 0.35), (STRUCK, 0.9, 1.0))
"""Both runs, each with the width of its line in points and its opacity: they coincide until the first failure."""
Styles = Mapping[str, LineStyle]
"""By recovery. None, where each has panels of its own, is solid."""
PANEL_IN = 1.1
PARTS = 10
"""The loss is averaged over a tenth of an epoch, so that the noise of single batches does not hide the curve."""
SLOW_STEPS = 4
"""Steps that are further apart than so many slow ones have a gap between them."""
SLOW = 0.9
"""A step is slow that takes longer than so many of all: with fewer ranks it may be many times as fast as with all."""
MARK = 0.08
"""Height of the mark of a failure, as a part of the panel."""
BETWEEN_MARKS = 0.02
"""Between the marks of two recoveries."""


@dataclass(frozen=True, slots=True)
class _Panel:
    """What a panel shows, and where. Panels that are alike but for the recovery share their axes."""

    rows: pd.DataFrame
    """A row for each struck run."""
    title: str
    line: int
    column: int
    first: tuple[int, int]
    """Line and column of the first of the panels with the same axes."""
    begins: bool
    """Whether it is the first of them in its line, which names their axis."""


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `aftermath` and `provenance`."""
    known = tables["aftermath"]
    if known.empty:
        return nothing_to_show(
            "No failure struck a run: there is no aftermath to show.",
            caption(known, tables["provenance"], ""),
        )
    shown = _prepared(known)
    apart = _is_apart(shown, known)
    styles = _styles(shown, apart=apart)
    window = max(2, int(shown["steps_per_epoch"].max()) // PARTS)
    reading = READING.format(
        window=window,
        undisturbed=OWN if apart else UNDISTURBED,
        rows=ROWS if len(styles) > 1 else "",
    )
    text = caption(shown, tables["provenance"], reading, (*SYSTEM, *ROW, "recovery"))
    panels = list(_placed(shown, apart=apart))
    across, lines = (max(place) + 1 for place in zip(*((p.column, p.line) for p in panels), strict=True))  # fmt: skip
    title_in = LINE_IN * max(panel.title.count("\n") for panel in panels)
    height_in = lines * (PANEL_IN + title_in + 1.6 * PANEL_EDGES_IN)
    figure = PaperFigure(COLUMN_IN if across == 1 else PAGE_IN, height_in, text)
    grid = figure.add_gridspec(lines, across)
    drawn: dict[tuple[int, int], Axes] = {}
    for panel in panels:
        first = drawn.get(panel.first)
        axes = figure.add_subplot(grid[panel.line, panel.column], sharex=first, sharey=first)
        drawn[panel.line, panel.column] = axes
        axes.set_title(panel.title)
        axes.set_xlabel("Time (s)")
        axes.set_ylabel("Training loss" if panel.begins else "")
        axes.tick_params(labelleft=panel.begins)
        _draw_panel(axes, panel.rows, known, window, styles)
    for axes in drawn.values():
        axes.set_xlim(0, None)  # only now that every panel which shares the axis is drawn
    legend(figure, _legend(styles))
    return figure


def _styles(shown: pd.DataFrame, *, apart: bool) -> Styles:
    """None where panels of their own tell recoveries apart."""
    return {} if apart else dict(zip(shown["recovery"].unique(), cycle(LINE_STYLES), strict=False))


def _prepared(known: pd.DataFrame) -> pd.DataFrame:
    """A row for each run that failures struck, in the order of panels and recoveries, with `facet` and `label`."""
    runs = with_hardware(known.drop_duplicates("run"))
    return labelled(faceted(ordered(runs, (*SYSTEM, "framework", *ROW, "recovery"))), ROW)


def _groups(shown: pd.DataFrame) -> list[pd.DataFrame]:
    """The runs that are alike but for their recovery."""
    return [rows for _, rows in shown.groupby(["framework", "facet", "label"], sort=False)]


def _is_apart(shown: pd.DataFrame, known: pd.DataFrame) -> bool:
    """Whether each recovery has a panel of its own: where there are many, or several undisturbed runs."""
    whole = known[known["what"] == UNDISTURBED]
    seconds = {str(run): tuple(own) for run, own in whole.groupby("run")["second"]}
    return any(
        len(rows) > TOGETHER or len({seconds.get(run) for run in rows["run"]}) > 1
        for rows in _groups(shown)
    )


def _placed(shown: pd.DataFrame, *, apart: bool) -> Iterator[_Panel]:
    """The panels from left to right and from top to bottom. Those with the same axes begin a new line unless they fit into one."""
    groups = _groups(shown)
    across = _across(max(map(len, groups))) if apart else ACROSS
    place = 0
    for rows in groups:
        members = [rows[rows["run"] == run] for run in rows["run"]] if apart else [rows]
        if place % across + len(members) > across:
            place = -(-place // across) * across
        first = divmod(place, across)
        width_in = (min(len(members), across, TITLE_OVER) * PAGE_IN / across - AXIS_IN) / BOLD
        title = folded(_title(rows.iloc[0]), width_in if apart else LABEL_IN)
        for number, member in enumerate(members):
            line, column = divmod(place + number, across)
            own = [_narrow(labels.recovery(member["recovery"].iloc[0]), across)] if apart else []
            names = [title, *own] if number == 0 else own
            yield _Panel(
                member, "\n".join(names), line, column, first, begins=number == 0 or column == 0
            )
        place += len(members)


def _narrow(name: str, across: int) -> str:
    """The name in lines that fit above a panel."""
    return "\n".join(wrapped(name, (PAGE_IN / across - AXIS_IN) / BOLD))


def _across(number: int) -> int:
    """Panels in a line, so that so many fill as few lines as can be, evenly."""
    return -(-number // -(-number // APART_ACROSS))


def _title(row: pd.Series) -> str:
    framework = labels.name(row["framework"])
    parts = [framework, *([row["facet"]] if row["facet"] else []), row["label"]]
    return " · ".join(parts)


def _draw_panel(
    axes: Axes, panel: pd.DataFrame, known: pd.DataFrame, window: int, styles: Styles
) -> None:
    color = look(panel["framework"].iloc[0]).color
    drawn: list[list[float]] = []
    for run, recovery in zip(panel["run"], panel["recovery"], strict=True):
        own = known[known["run"] == run]
        for what, linewidth, alpha in LINES:
            steps = own[own["what"] == what]
            if what == UNDISTURBED:
                if steps["second"].tolist() in drawn:  # recoveries may share it
                    continue
                drawn.append(steps["second"].tolist())
            line_style = styles.get(recovery, SOLID) if what == STRUCK else SOLID
            line = {"linewidth": linewidth, "linestyle": line_style, "alpha": alpha, "gid": what}
            _draw_curve(axes, steps, window, color=color, **line)
        row = list(styles).index(recovery) if styles else 0
        low = row * (MARK + BETWEEN_MARKS)
        axes.vlines(
            own.loc[own["what"] == FAILURE, "second"],
            low,
            low + MARK,
            colors=INK,
            transform=axes.get_xaxis_transform(),
            gid="failures",
        )


def _draw_curve(
    axes: Axes,
    steps: pd.DataFrame,
    window: int,
    *,
    color: str,
    **line: Any,
) -> None:
    """Steps far apart from one another are not joined."""
    if steps.empty:
        return
    apart = steps["second"].diff()
    gaps = apart > SLOW_STEPS * apart.quantile(SLOW)
    mean = steps["loss"].rolling(window, min_periods=1).mean()
    axes.plot(steps["second"].where(~gaps), mean, color=color, **line)


def _legend(styles: Styles) -> list[Line2D]:
    (undisturbed, wide, faint), (struck, narrow, alpha) = LINES
    thick = Line2D([], [], color=INK, linewidth=wide, alpha=faint, label=undisturbed)
    mark = Line2D([], [], color=INK, linestyle="", marker="|", label=FAILURE)
    names = [(labels.recovery(recovery), style) for recovery, style in styles.items()]
    lines = [
        Line2D([], [], color=INK, linewidth=narrow, alpha=alpha, linestyle=style, label=name)
        for name, style in (names if len(names) > 1 else [(struck, SOLID)])
    ]
    return [thick, *lines, mark]

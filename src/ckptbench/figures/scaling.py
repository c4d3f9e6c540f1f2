"""Throughput without checkpoints, and the cost of one checkpoint, against the number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.lines import Line2D

from ckptbench.analysis.tables.grouping import groups
from ckptbench.answer import labels
from ckptbench.answer.setups import (
    SYSTEM,
    faceted,
    labelled,
    ordered,
    per_framework,
    varying,
    with_hardware,
)
from ckptbench.figures.kit.captions import caption, text_width_in
from ckptbench.figures.kit.disturbed import with_disturbed
from ckptbench.figures.kit.panels import (
    BOLD,
    FACETS_ACROSS,
    LINE_IN,
    PANEL_EDGES_IN,
    PaperFigure,
    folded,
    legend,
    mark_disturbed,
    nothing_to_show,
)
from ckptbench.figures.kit.style import (
    COLUMN_IN,
    DASH_DOTTED,
    DOTTED,
    FAINT,
    LINE_STYLES,
    PAGE_IN,
    LineStyle,
    look,
)
from ckptbench.figures.kit.ticks import durations, logarithmic, measured_ranks

READING = (
    "Throughput without checkpoints, the batch size per rank fixed; ideal: that of the fewest ranks"
    " measured, times the ranks. One checkpoint: filled points are the stall of the slowest rank,"
    " hollow ones the time until all is on stable storage, means of a run over repeats. Vertical bars are 95 % intervals"
)
SHARED = (
    "Ranks share the cores of a machine: dash-dotted is what these allow, if each core does as much as"
    " with the fewest ranks"
)
NOTHING = "No framework was measured with two numbers of ranks: there is no scaling to show."
SERIES = ("strategy", "format", "interval")
MOST_SERIES = 4
"""As many curves, each of a stall and of a durable time, can be told apart in one panel."""
RATES = ("images_per_s", "images_per_s_lo", "images_per_s_hi", "ideal", "allowed")
ROUNDING = 1e-6
"""Shares by which the cores allow less than the ideal count as none below this."""
TITLE_IN = 2.3
"""Width in inches that a title may take: that of a panel beside another, or in one column."""
LEGEND_IN = 1.2
"""Width in inches of the text of a legend that has room beside a panel in one column."""
COSTS = ("stall_s", "stall_s_lo", "stall_s_hi", "durable_s")
"""Columns whose values the axis of the costs must hold."""


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `scaling`, `checkpoint_cost` and `provenance`."""
    throughput, cost = _prepared(
        with_disturbed(tables["scaling"], tables),
        with_disturbed(tables["checkpoint_cost"], tables),
    )
    shown = pd.concat([frame for frame in (throughput, cost) if len(frame)] or [throughput])
    if not (shown.groupby(["facet", "framework"])["ranks"].nunique() > 1).any():
        text = caption(shown, tables["provenance"], "", (*SYSTEM, "ranks"))
        return nothing_to_show(NOTHING, text)
    rows = list(_rows(throughput, cost))
    reading = f"{READING}. {SHARED}" if throughput["allowed"].notna().any() else READING
    text = caption(shown, tables["provenance"], reading, (*SYSTEM, *SERIES))
    return _grid(rows, text, shown["ranks"])


@dataclass(frozen=True, slots=True)
class _Row:
    """Panels side by side: one quantity, a facet each."""

    facets: list[str]
    title: str
    ylabel: str
    height_in: float
    frame: pd.DataFrame
    draw: Callable[[Axes, pd.DataFrame], None]
    legend: list[Line2D]
    extent: list[float]
    """The values that the y axis spans. Those of the same quantity in other rows are included."""
    scale: Callable[[Axis, Iterable[float]], None]


def _prepared(scaling: pd.DataFrame, cost: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Both tables in order, with facets in common; the first with `ideal`, what the fewest ranks
    promise, and `allowed`, what the machine does where that is less."""
    frames = [with_hardware(scaling), with_hardware(cost)]
    both = pd.concat(
        [frame.assign(is_cost=place == 1) for place, frame in enumerate(frames) if len(frame)]
        or [frames[0].assign(is_cost=False)]
    )
    known = faceted(ordered(both, (*SYSTEM, "framework", "ranks")))
    # Of a study without baselines the first has no rows, and would have lost its columns.
    rates = known[~known["is_cost"]].reindex(
        columns=known.columns.union(pd.Index([*RATES, "allowed_images_per_s"]), sort=False)
    )
    cost = known[known["is_cost"]]
    if len(cost):
        cost = ordered(cost, ("framework", *SERIES, *SYSTEM, "ranks"))
    return _with_ideal(rates), cost


def _with_ideal(throughput: pd.DataFrame) -> pd.DataFrame:
    fewest = throughput.groupby(["facet", "framework"])[["images_per_s", "ranks"]].transform(
        "first"
    )
    ideal = fewest["images_per_s"] * throughput["ranks"] / fewest["ranks"]
    bounded = throughput["allowed_images_per_s"] < (1 - ROUNDING) * ideal
    bounds = bounded.groupby([throughput["facet"], throughput["framework"]]).transform("any")
    return throughput.assign(
        ideal=ideal, allowed=throughput["allowed_images_per_s"].where(bounds.astype(bool))
    )


def _rows(throughput: pd.DataFrame, cost: pd.DataFrame) -> Iterator[_Row]:
    facets = list(pd.concat([throughput["facet"], cost["facet"]]).unique())
    readable = {name: frame for _, own in per_framework(cost) for name, frame in _readable(own)}
    titles = [_title(name, facet) for name in ["Throughput", *readable] for facet in facets]
    across = FACETS_ACROSS if _widest_in(titles) <= TITLE_IN else 1
    for start in range(0, len(facets), across):
        chunk = facets[start : start + across]
        rates = throughput[throughput["facet"].isin(chunk)]
        if len(rates):
            yield _Row(
                chunk, "Throughput", "Images/s", 1.5, rates, _draw_throughput,
                _throughput_legend(rates), list(throughput[list(RATES)].to_numpy().ravel()), logarithmic,
            )  # fmt: skip
        for name, frame in readable.items():
            own = frame[frame["facet"].isin(chunk)]
            if len(own):
                yield _Row(
                    chunk, name, "One checkpoint", 0.9, own, _draw_cost,
                    _cost_legend(own), list(cost[list(COSTS)].to_numpy().ravel()), durations,
                )  # fmt: skip


def _readable(own: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """A framework's costs in parts of at most MOST_SERIES curves: by strategy, and then by format, where they are more.

    Yields each part's name and its rows, with `label`, the name of a series, and `line`, its number within the part.
    """
    titles = pd.Series(labels.name(own["framework"].iloc[0]), own.index)
    told_apart = list(SERIES)
    for column in varying(own, SERIES[:-1]):
        if own.groupby(titles)[told_apart].apply(_count).max() <= MOST_SERIES:
            break
        told_apart.remove(column)
        titles += ", " + own[column].map(partial(labels.describe, column))
    for title in titles.unique():
        part = labelled(own[titles == title], told_apart)
        yield title, part.assign(line=pd.factorize(part["label"])[0])


def _count(series: pd.DataFrame) -> int:
    return len(series.drop_duplicates())


def _title(name: str, facet: str) -> str:
    return f"{name}, {facet}" if facet else name


def _widest_in(titles: list[str]) -> float:
    return BOLD * max(map(text_width_in, titles))


def _grid(rows: list[_Row], text: str, ranks: pd.Series) -> PaperFigure:
    across = max(len(row.facets) for row in rows)
    heights = [max(row.height_in, _legend_in(row)[1]) for row in rows]
    height_in = sum(heights) + (PANEL_EDGES_IN + LINE_IN) * len(rows)
    titles = [_title(row.title, facet) for row in rows for facet in row.facets]
    widest_in = max(_legend_in(row)[0] for row in rows)
    is_narrow = across == 1 and _widest_in(titles) <= TITLE_IN and widest_in <= LEGEND_IN
    figure = PaperFigure(COLUMN_IN if is_narrow else PAGE_IN, height_in, text)
    grid = figure.add_gridspec(len(rows), across, height_ratios=heights)
    for place, row in enumerate(rows):
        for column, facet in enumerate(row.facets):
            shown = row.frame[row.frame["facet"] == facet]
            if len(shown):
                axes = figure.add_subplot(grid[place, column])
                axes.set_title(_title(row.title, facet))
                _draw_panel(axes, row, shown, ranks)
        # Beside the last panel of the row, where it covers nothing.
        axes.legend(handles=row.legend, loc="center left", bbox_to_anchor=(1.0, 0.5))
    legend(figure)
    return figure


def _legend_in(row: _Row) -> tuple[float, float]:
    """Width and height in inches of the text of a row's legend."""
    lines = [line for handle in row.legend for line in str(handle.get_label()).split("\n")]
    return max(map(text_width_in, lines)), LINE_IN * len(lines)


def _draw_panel(axes: Axes, row: _Row, shown: pd.DataFrame, ranks: pd.Series) -> None:
    row.draw(axes, shown)
    row.scale(axes.yaxis, row.extent)
    measured_ranks(axes.xaxis, ranks)
    axes.set_xlabel("Ranks")
    axes.set_ylabel(row.ylabel)


def _draw_throughput(axes: Axes, facet: pd.DataFrame) -> None:
    for framework, rows in per_framework(facet):
        color, marker = look(framework).color, look(framework).marker
        ends = rows.iloc[[0, -1]]
        axes.plot(
            ends["ranks"], ends["ideal"], linestyle=DOTTED, color=color, linewidth=0.8, gid="ideal"
        )
        if rows["allowed"].notna().any():
            axes.plot(
                rows["ranks"],
                rows["allowed"],
                linestyle=DASH_DOTTED,
                color=color,
                linewidth=0.8,
                gid="allowed",
            )
        axes.plot(rows["ranks"], rows["images_per_s"], color=color, marker=marker, gid="measured")
        axes.vlines(rows["ranks"], rows["images_per_s_lo"], rows["images_per_s_hi"], colors=color)
    mark_disturbed(axes, facet, "ranks", "images_per_s")


def _throughput_legend(rates: pd.DataFrame) -> list[Line2D]:
    measured = [
        Line2D([], [], color=look(f).color, marker=look(f).marker, label=labels.name(f))
        for f, _ in per_framework(rates)
    ]
    lines = {"ideal": DOTTED, "cores allow": DASH_DOTTED}
    if rates["allowed"].isna().all():
        del lines["cores allow"]
    return [
        *measured,
        *(
            Line2D([], [], color=FAINT, linestyle=style, linewidth=0.8, label=label)
            for label, style in lines.items()
        ),
    ]


def _draw_cost(axes: Axes, own: pd.DataFrame) -> None:
    for group, rows in groups(own, ["line"]):
        color, marker = (
            look(rows["framework"].iloc[0]).color,
            look(rows["framework"].iloc[0]).marker,
        )
        for quantity, face, size in (("durable_s", "white", 5.5), ("stall_s", color, 2.5)):
            axes.plot(
                rows["ranks"],
                rows[quantity],
                color=color,
                marker=marker,
                linestyle=_line_style(group["line"]),
                markerfacecolor=face,
                markersize=size,
                gid=quantity,
            )
        axes.vlines(rows["ranks"], rows["stall_s_lo"], rows["stall_s_hi"], colors=color)
    mark_disturbed(axes, own, "ranks", "stall_s")


def _cost_legend(own: pd.DataFrame) -> list[Line2D]:
    series = own.drop_duplicates("line").sort_values("line")
    color = look(own["framework"].iloc[0]).color
    return [
        Line2D([], [], color=color, linestyle=_line_style(line), label=folded(label))
        for line, label in zip(series["line"], series["label"], strict=True)
    ]


def _line_style(line: int) -> LineStyle:
    return LINE_STYLES[line % len(LINE_STYLES)]

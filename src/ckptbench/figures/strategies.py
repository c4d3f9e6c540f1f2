"""What a checkpoint of each strategy costs: stall, slowdown, durable, overhead and memory side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ckptbench.answer import labels
from ckptbench.answer.setups import CHECKPOINT, SYSTEM, prepared
from ckptbench.figures.kit.captions import caption, continued
from ckptbench.figures.kit.disturbed import with_disturbed
from ckptbench.figures.kit.outside import is_own
from ckptbench.figures.kit.panels import Panel, PaperFigure, forest, legend, nothing_to_show
from ckptbench.figures.kit.style import BAND, INK, look
from ckptbench.figures.kit.ticks import durations, percent

READING = (
    "points are estimates, bars their 95 % intervals. Of one checkpoint: stall, the time that training is blocked; slowdown, the extra time of the steps"
    " while it is written in the background; durable, the time until it survives a power cut. Overhead is the"
    " estimate to quote, at the interval of the row"
)
READING_OWN = (
    "points are estimates, bars their 95 % intervals. Of one checkpoint: stall, the time that training is blocked; hidden, by how much more the gaps"
    " between updates are longer than quiet ones until it is finished; finished, the time until the engine says so, which is not yet durable. Overhead is the"
    " estimate to quote, at the interval of the row"
)
MEMORY = "memory is the peak above the baseline's"
MEMORY_OWN = "memory is the peak above that at the start of a save"
TORN = "shaded rows are torn: a version was not the state of its step"
UNKNOWN = "where a row has no point, nothing could be estimated"
DURABLE = "durable is of the checkpoints that reached the level shared: {}"
FINISHED = "finished is of the checkpoints of which the engine said it: {}"
UNCOMPARED = "no version was compared with the state of its step"


WIDER = "bars that end at the edge of a panel go further"
NARROWEST_IN = 0.85
"""Width in inches that the name of a measure needs."""
FARTHEST = 3
"""An axis goes so many times as far as its largest estimate, and no further: intervals of few runs can be far wider."""


@dataclass(frozen=True, slots=True)
class _Measure:
    """A column of panels: the columns of the table, the name on its axis, and the factor between them."""

    value: str
    low: str
    high: str
    label: str
    scale: float = 1.0
    is_logarithmic: bool = False


MEASURES = (
    _Measure("stall_s", "stall_low_s", "stall_high_s", "Stall", is_logarithmic=True),
    _Measure("slowdown_s", "slowdown_low_s", "slowdown_high_s", "Slowdown (s)"),
    _Measure("durable_s", "durable_low_s", "durable_high_s", "Durable", is_logarithmic=True),
    _Measure("overhead", "overhead_low", "overhead_high", "Overhead (%)", 100.0),
    _Measure("memory_bytes", "memory_low_bytes", "memory_high_bytes", "Memory (MB)", 1e-6),
)
NAMES_OWN = {"slowdown_s": "Hidden (s)", "durable_s": "Finished"}
"""What the probe calls measures that it sees from outside."""


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `strategies` and `provenance`."""
    shown, interrupted = tables["strategies"], continued(tables["provenance"])
    if shown[[measure.value for measure in MEASURES]].isna().all(axis=None):
        text = caption(shown, tables["provenance"], interrupted)
        return nothing_to_show(
            "No run that can be timed wrote a checkpoint: there is no strategy to show.", text
        )
    rows = _marked(prepared(with_disturbed(shown, tables, paired=True)))
    measures = [measure for measure in MEASURES if rows[measure.value].notna().any()]
    text = caption(
        rows, tables["provenance"], _reading(rows, measures, interrupted, is_own(tables)), (*SYSTEM, *CHECKPOINT)
    )  # fmt: skip
    names = NAMES_OWN if is_own(tables) else {}
    figure, panels = forest(
        rows, text, pitch_in=0.15, axes_widths=(1,) * len(measures), narrowest_in=NARROWEST_IN
    )
    for panel in panels:
        for axes, measure in zip(panel.axes, measures, strict=True):
            _draw_measure(axes, panel, measure)
            _set_axis(axes, rows, measure)
            if panel.is_lowest:
                axes.set_xlabel(names.get(measure.value, measure.label))
    legend(figure, _legend(rows))
    return figure


def _marked(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows, torn ones so named."""
    torn = _is_torn(rows)
    return rows.assign(label=rows["label"].mask(torn, rows["label"] + " (torn)"))


def _is_torn(rows: pd.DataFrame) -> pd.Series:
    return rows["consistent"].eq(False).fillna(False).astype(bool)


def _reading(rows: pd.DataFrame, measures: list[_Measure], interrupted: str, own: bool) -> str:
    parts = [
        READING_OWN if own else READING,
        *_durable(rows, FINISHED if own else DURABLE),
        *([MEMORY_OWN if own else MEMORY] if rows["memory_bytes"].notna().any() else []),
        *([UNKNOWN] if rows[[measure.value for measure in measures]].isna().any(axis=None) else []),
        *([WIDER] if any(_goes_further(rows, measure) for measure in measures) else []),
        *([TORN] if _is_torn(rows).any() else []),
        *([interrupted] if interrupted else []),
        *([UNCOMPARED] if rows["consistent"].isna().all() else []),
    ]
    return "; ".join(parts)


def _durable(rows: pd.DataFrame, words: str) -> list[str]:
    """Whose checkpoints did not all reach the shared level, and how many did."""
    nearer = rows[rows["durable_checkpoints"] < rows["checkpoints"]]
    numbers = nearer.groupby("strategy", sort=False)[["durable_checkpoints", "checkpoints"]].sum()
    said = [
        f"{reached or 'none'} of {checkpoints} of {labels.describe('strategy', str(strategy))}"
        for strategy, reached, checkpoints in numbers.itertuples()
    ]
    return [words.format(", ".join(said))] if said else []


def _draw_measure(axes: Axes, panel: Panel, measure: _Measure) -> None:
    rows, appearance = panel.rows, look(panel.framework)
    for y in rows.loc[_is_torn(rows), "y"]:
        axes.axhspan(y - 0.5, y + 0.5, color=BAND, linewidth=0, zorder=0, gid="torn")
    if not measure.is_logarithmic:
        axes.axvline(0, color=INK, linewidth=0.5)
    low, value, high = _scaled(rows, measure)
    axes.hlines(rows["y"], low, high, colors=appearance.color)
    axes.plot(
        value,
        rows["y"],
        appearance.marker,
        color=appearance.color,
        markersize=3,
        gid=measure.value,
    )


def _scaled(rows: pd.DataFrame, measure: _Measure) -> list[pd.Series]:
    return [measure.scale * rows[name] for name in (measure.low, measure.value, measure.high)]


def _bounds(rows: pd.DataFrame, measure: _Measure) -> tuple[float, float]:
    """The smallest and the largest value that the axis must hold."""
    largest = measure.scale * rows[measure.value].abs().max()
    every = pd.concat(_scaled(rows, measure))
    if measure.is_logarithmic:
        smallest = measure.scale * rows[measure.value].min()
        return max(every.min(), smallest / FARTHEST), min(every.max(), largest * FARTHEST)
    return max(every.min(), -FARTHEST * largest), min(every.max(), FARTHEST * largest)


def _goes_further(rows: pd.DataFrame, measure: _Measure) -> bool:
    low, high = _bounds(rows, measure)
    every = pd.concat(_scaled(rows, measure))
    return bool(every.min() < low or every.max() > high)


def _set_axis(axes: Axes, rows: pd.DataFrame, measure: _Measure) -> None:
    """All panels of a measure have the same axis."""
    bounds = _bounds(rows, measure)
    if measure.is_logarithmic:
        durations(axes.xaxis, bounds)
    elif measure.value == "overhead":
        percent(axes.xaxis, bounds)
    else:
        room = 0.05 * (max(bounds) - min(bounds) or 1)
        axes.set_xlim(min(0.0, *bounds) - room, max(0.0, *bounds) + room)


def _legend(rows: pd.DataFrame) -> list[Artist]:
    point = Line2D([], [], color=INK, marker="o", label="estimate and interval")
    band = Patch(facecolor=BAND, label="torn")
    return [point, *([band] if _is_torn(rows).any() else [])]

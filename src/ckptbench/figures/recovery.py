"""Where the time that a failure costs goes, by part, and what part of the time was useful all the same."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes

from ckptbench.answer.setups import (
    CHECKPOINT,
    SYSTEM,
    faceted,
    labelled,
    ordered,
    with_hardware,
)
from ckptbench.figures.kit.captions import caption
from ckptbench.figures.kit.disturbed import with_disturbed
from ckptbench.figures.kit.panels import Panel, PaperFigure, forest, legend, nothing_to_show
from ckptbench.figures.kit.parts import Part, stack, write_beside
from ckptbench.figures.kit.style import GREYS, look
from ckptbench.figures.kit.ticks import of_whole
from ckptbench.figures.kit.useful import beyond, farthest_of

READING = (
    "Left: the time that one failure costs, by part, mean over failures and repeats; the number is all of it{faster}. Coloured: work"
    " that had been done before, and is done again. Right: useful time of all time, the useful time being that of the"
    " baseline{interval}{beyond}{explained}"
)
INTERVAL = ", with its 95 % interval"
FASTER = ", less what is left of 0, by which steps with fewer ranks were faster"
EXPLAINED = ". The parts are {percent} % of what the runs lost against undisturbed ones{some}"
OF_SOME = " ({clear} of {known} setups: what the others lost is not known to a fifth)"
UNCLEAR = ". The parts are not checked: what the runs lost against undisturbed ones is not known to a fifth"
CLEAR = 5.0
"""How many times as long as half of its interval a loss must be for the parts to be held against it."""
PARTS = {
    "detection": Part("detection", GREYS[0], "", ("detection_s",)),
    "ending": Part("ending the rest", GREYS[1], "", ("ending_s",)),
    "launch": Part("choice, launch", GREYS[2], "", ("choice_s", "launch_s")),
    "import": Part("import", GREYS[3], "", ("import_s",)),
    "build": Part("build", GREYS[4], "", ("build_s",)),
    "regroup": Part("regrouping", GREYS[5], "......", ("regroup_s",)),
    "load": Part("load", GREYS[2], "//////", ("load_s",)),
    "again": Part("done again (coloured)", None, "", ("unfinished_s", "again_s")),
    "slower": Part("slower steps", GREYS[5], "xxxxxx", ("slower_s",)),
    "rest": Part("rest", GREYS[5], "", ("rest_s",)),
}
ROW = (*CHECKPOINT, "history", "recovery")
ROOM = 1.3
"""The factor between the longest bar and the axis: the room for the numbers."""


def draw(tables: Mapping[str, pd.DataFrame]) -> PaperFigure:
    """From the tables `goodput` and `provenance`."""
    known = tables["goodput"]
    shown = known[known["failures"] > 0]
    if shown.empty:
        return nothing_to_show(
            "No failure struck a run: there is no recovery to show.",
            caption(shown, tables["provenance"], ""),
        )
    rows = _prepared(with_disturbed(shown, tables, paired=True))
    text = caption(rows, tables["provenance"], _reading(rows), (*SYSTEM, *ROW))
    present = [part for part in PARTS if (rows[part] != 0).any()]
    figure, panels = forest(rows, text, pitch_in=0.19, axes_widths=(3, 1.2))
    farthest = farthest_of(rows, ["goodput"])
    for panel in panels:
        _draw_panel(panel, rows, farthest)
    own = look(panels[0].framework).color
    legend(figure, [part.handle(own) for name, part in PARTS.items() if name in present])
    return figure


def _prepared(shown: pd.DataFrame) -> pd.DataFrame:
    """The rows in order, each with `facet`, `label`, and the seconds of every part for one failure."""
    parts = {
        name: shown[list(part.columns)].sum(axis=1) / shown["failures"]
        for name, part in PARTS.items()
    }
    known = with_hardware(shown).assign(**parts)
    return labelled(faceted(ordered(known, (*SYSTEM, "framework", *ROW))), ROW)


def _reading(rows: pd.DataFrame) -> str:
    return READING.format(
        faster=FASTER if (rows["slower"] < 0).any() else "",
        interval=INTERVAL if rows["goodput_lo"].notna().any() else "",
        beyond=beyond(rows, ["goodput"]),
        explained=_explained(rows),
    )


def _explained(rows: pd.DataFrame) -> str:
    """Nothing where no undisturbed run ran."""
    known = rows[rows["loss_s"].notna()]
    half_s = (known["unexplained_s_hi"] - known["unexplained_s_lo"]) / 2
    clear = known[CLEAR * half_s < known["loss_s"]]
    if clear.empty:
        return UNCLEAR if len(known) else ""
    percent = 100 * clear["explained"]
    ends = dict.fromkeys(f"{end:.0f}" for end in (percent.min(), percent.max()))
    some = OF_SOME.format(clear=len(clear), known=len(known)) if len(clear) < len(known) else ""
    return EXPLAINED.format(percent=" to ".join(ends), some=some)


def _draw_panel(panel: Panel, rows: pd.DataFrame, farthest: float) -> None:
    parts, useful = panel.axes
    facet = rows[rows["facet"] == panel.rows["facet"].iloc[0]]
    _draw_parts(parts, panel)
    appearance = look(panel.framework)
    useful.plot(
        100 * panel.rows["goodput"],
        panel.rows["y"],
        appearance.marker,
        color=appearance.color,
        gid="goodput",
    )
    useful.hlines(
        panel.rows["y"],
        100 * panel.rows["goodput_lo"],
        100 * panel.rows["goodput_hi"],
        colors=appearance.color,
        gid="goodput interval",
    )
    lengths = facet[list(PARTS)].clip(lower=0).sum(axis=1)
    parts.set_xlim(min(0.0, ROOM * facet[list(PARTS)].min(axis=None)), ROOM * lengths.max())
    of_whole(useful.xaxis, farthest)
    if panel.is_lowest:
        parts.set_xlabel("One failure (s)")
        useful.set_xlabel("Goodput (%)")


def _draw_parts(axes: Axes, panel: Panel) -> None:
    rows = panel.rows
    ends = stack(axes, rows, PARTS, look(panel.framework).color)
    totals = rows[list(PARTS)].sum(axis=1)
    write_beside(axes, zip(ends, rows["y"], strict=True), totals.map("{:.3g} s".format), "total")

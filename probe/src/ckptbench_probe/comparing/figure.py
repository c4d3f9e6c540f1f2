"""compare.png, where matplotlib is installed beside the probe."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ckptbench_probe.comparing.estimates import Result
from ckptbench_probe.statistics import Estimate

STALL, SLOWDOWN = "o#0072b2", "s#d55e00"
"""Marker and color. Colors of Okabe and Ito, told apart by color-blind readers too."""


def draw(results: Sequence[Result], title: str, path: Path) -> str:
    """Points with 95 % intervals, a row each setting. Returns why there is no figure; empty: there is one."""
    shown = [one for one in results if one.setting.baseline and one.overhead and one.stall]
    if not shown:
        return "no save was timed"
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return "matplotlib is not installed beside ckptbench-probe"
    height = 1.9 + 0.42 * len(shown)
    figure = Figure(figsize=(9.5, height), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    for place, one in enumerate(shown):
        _point(left, one.overhead, place, STALL, 100.0)
        _point(right, one.stall, place - 0.13, STALL, 1e3)
        _point(right, one.slowdown, place + 0.13, SLOWDOWN, 1e3)
    left.set_yticks(range(len(shown)), [one.setting.label for one in shown])
    left.set_ylim(len(shown) - 0.5, -0.5)
    left.set_xlabel("overhead compared with no checkpoints (%)")
    right.set_xlabel("training time per save (ms)")
    right.plot([], [], STALL[0], color=STALL[1:], label="stall: a save stops training")
    right.plot(
        [], [], SLOWDOWN[0], color=SLOWDOWN[1:], label="slowdown: slower steps during the save"
    )
    figure.legend(loc="outside lower right", ncols=2, frameon=False)
    for axes in (left, right):
        low, high = axes.get_xlim()
        axes.set_xlim(min(low, 0.0), max(high, 0.0))
        axes.axvline(0, color="0.6", linewidth=0.8, zorder=0)
        axes.grid(axis="x", color="0.9")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    blocks = max(one.overhead.number for one in shown if one.overhead)
    figure.suptitle(
        f"{title}: means of {blocks} blocks with 95 % intervals" if blocks > 1 else f"{title}: one run each, no intervals",
        fontsize="medium",
    )  # fmt: skip
    figure.savefig(path, dpi=150)
    return ""


def _point(axes: Any, one: Estimate | None, place: float, style: str, unit: float) -> None:
    if one is None:
        return
    mean, lo, hi = (unit * each for each in (one.mean, one.lo, one.hi))
    ends = None if math.isnan(lo) else [[mean - lo], [hi - mean]]
    axes.errorbar([mean], [place], xerr=ends, fmt=style[0], color=style[1:], capsize=3)

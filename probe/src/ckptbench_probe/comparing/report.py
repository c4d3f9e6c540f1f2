"""What is said of a comparison: lines for a screen, compare.csv, JSON, and the costs that `ckptbench decide` reads."""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, Callable

from ckptbench_probe.answer import EXAMPLES, RATE_NEEDED, Overrides, command, interval_lines
from ckptbench_probe.comparing.estimates import Result
from ckptbench_probe.comparing.settings import Values
from ckptbench_probe.costs import GIVEN, MEASURED, UNKNOWN, UNKNOWN_DOWN_S, Costs
from ckptbench_probe.harmless import harmless
from ckptbench_probe.screen import WIDTH
from ckptbench_probe.statistics import Estimate, Seconds
from ckptbench_probe.words import duration, percent, size

ADDED = "added per step"
"""The column of the time by which steps are longer on average than without checkpoints."""


def row(result: Result) -> dict[str, Any]:
    """Of compare.csv and JSON; docs/own-training.md says what each name means."""
    found: dict[str, Any] = {
        "setting": result.setting.label,
        **{f"value_{name}": text for name, text in result.setting.values},
        "baseline": result.setting.baseline,
        "runs": len(result.runs),
        "paired_runs": result.paired.number if result.paired else 0,
        "ranks": max((run.measures.ranks for run in result.runs), default=0),
        "steps": max((run.measures.updates for run in result.runs), default=0),
        "saves": len(result.saved),
        "interval_steps": result.interval_steps,
        "engines": " and ".join(sorted({kind for one in result.saved for kind in one.kinds})),
        "overhead_from": result.quoted,
    }
    for name, one in _with_ends(result).items():
        for end, value in zip(("", "_lo", "_hi"), (one.mean, one.lo, one.hi) if one else ()):
            found[name + end] = None if math.isnan(value) else value
        if one is None:
            found.update({name + end: None for end in ("", "_lo", "_hi")})
    found["bytes"] = _bytes(result)
    found["files"] = round(median(one.files for one in result.saved)) if result.saved else None
    found["note"] = "; ".join(result.notes)
    return found


def _with_ends(result: Result) -> dict[str, Estimate | None]:
    """By column what has a 95 % interval, `NAME_lo` to `NAME_hi`."""
    return {
        "overhead": result.overhead,
        "paired": result.paired,
        "in_run": result.in_run,
        "added_step_s": result.added_step,
        "step_s": result.step,
        "stall_s": result.stall,
        "slowdown_s": result.slowdown,
        "finished_s": result.finished,
    }


def _bytes(result: Result) -> int | None:
    return round(median(one.size for one in result.saved)) if result.saved else None


def table(rows: Sequence[dict[str, Any]]) -> str:
    """As CSV."""
    names = list(dict.fromkeys(name for one in sorted(rows, key=len, reverse=True) for name in one))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def screen(results: Sequence[Result]) -> list[str]:
    """A table, and below it what to know before one of its numbers is quoted."""
    saving = [one for one in results if one.saved and one.setting.baseline]
    lines = list(_table(saving)) if saving else []
    baselines = {one.setting.label: one for one in results if not one.setting.baseline}
    if saving:
        lines += [
            _line("", f"means over blocks, with 95 % intervals. overhead: extra time compared with no checkpoints; {ADDED}: mean extra time per step;"),
            _line("", "stall: a save stops training; slowdown: how much slower steps are during a save; bytes: of one checkpoint"),
        ]  # fmt: skip
    for label, one in baselines.items():
        step = f"a step {_between(one.step, duration)}" if one.step else "none of its runs counts"
        lines.append(_line("baseline", f"{label + ': ' if label != 'baseline' else ''}{step}"))
    blocks = max((len(one.runs) for one in saving), default=3)
    if blocks < 3:
        few = (
            "one block: no intervals, as it does not show"
            if blocks == 1
            else "two blocks: wide intervals, as they barely show"
        )
        lines.append(_line("note", f"{few} how much runs differ by chance. --repeats 3 adds the missing blocks"))  # fmt: skip
    return lines + [
        _line("note", f"{one.setting.label}: {note}") for one in results for note in one.notes
    ]


def _line(name: str, text: str) -> str:
    return f"{name:<{WIDTH}}{text}"


def _table(results: Sequence[Result]) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [
        ("setting", "overhead", ADDED, "stall", "slowdown", "saves", "bytes")
    ]
    for one in results:
        times = (one.added_step, one.stall, one.slowdown)
        rows.append(
            (
                one.setting.label,
                _between(one.overhead, percent),
                *(_between(each, duration) for each in times),
                str(len(one.saved)),
                size(_bytes(one) or 0),
            )
        )
    widths = [max(map(len, column)) + 2 for column in zip(*rows)]
    for each in rows:
        yield "".join(f"{text:<{width}}" for text, width in zip(each, widths)).rstrip()


def _between(one: Estimate | None, word: Callable[[float], str]) -> str:
    """`26 ms (19 to 37)`: the unit once, where it is the same."""
    if one is None:
        return "not known"
    if math.isnan(one.lo):
        return word(one.mean)
    mean, lo, hi = word(one.mean), word(one.lo), word(one.hi)
    units = {text.partition(" ")[2] for text in (mean, lo, hi)}
    if len(units) == 1:
        lo, hi = lo.partition(" ")[0], hi.partition(" ")[0]
    return f"{mean} ({lo} to {hi})"


def strategies(results: Sequence[Result]) -> dict[Values, Result]:
    """One result for each way to save, that with most saves: settings that differ only in how often they save are one way."""
    saving = [one for one in results if one.stall and one.interval_steps]
    aside = _unnamed(saving)
    found: dict[Values, Result] = {}
    for one in sorted(saving, key=lambda one: -one.costed_saves):
        shared = tuple(pair for pair in one.setting.values if pair[0] not in aside)
        found.setdefault(shared, one)
    return found


def _unnamed(results: Sequence[Result]) -> set[str]:
    """Values that name no way to save: there is one, or they say how often, so that all else equal the measured interval changes with them."""
    found = set()
    for name in {name for one in results for name, _ in one.setting.values}:
        beside: dict[Values, set[int]] = defaultdict(set)
        for one in results:
            others = tuple(pair for pair in one.setting.values if pair[0] != name)
            beside[others].add(one.interval_steps)
        values = {dict(one.setting.values)[name] for one in results}
        if len(values) == 1 or any(len(own) > 1 for own in beside.values()):
            found.add(name)
    return found


def costs_of_way(values: Values, result: Result, overrides: Overrides) -> Costs:
    """Of one way to save, by the rules of `ckptbench_probe.costs.costs`, from means over blocks. `values`: those that name it."""
    starts = [run.measures.start_s for run in result.runs if run.measures.start_s]
    given, measured = overrides.restart_s, max(starts, default=0.0)
    assert result.stall is not None
    assert result.step is not None
    background = any(one.background for one in result.saved)
    slowdown_s = max(result.slowdown.mean, 0.0) if result.slowdown else 0.0
    stall = _seconds(result.stall.plus(0.0 if background else slowdown_s))
    finished = _seconds(result.finished) if result.finished else stall
    engines = " and ".join(sorted({kind for one in result.saved for kind in one.kinds}))
    return Costs(
        name=", ".join(f"{name}={text}" for name, text in values) or engines,
        step=_seconds(result.step),
        stall=stall,
        durable=finished if finished.mean >= stall.mean else stall,
        slowdown_s=slowdown_s if background else 0.0,
        bytes=_bytes(result) or 0,
        background=background,
        interval_steps=result.interval_steps,
        down_s=given or measured or UNKNOWN_DOWN_S,
        down_from=GIVEN if given else MEASURED if measured else UNKNOWN,
    )


def _seconds(one: Estimate) -> Seconds:
    return Seconds(one.mean, one.mean, one.lo, one.hi, one.mean, one.mean, one.number)


def advice(ways: dict[Values, Result], known: Sequence[Costs], overrides: Overrides, file: Path) -> list[str]:  # fmt: skip
    """How often to save in each way, where that can be computed here; else the command that computes it. `file`: that of the costs."""
    if not known:
        return [_line("answer", "no answer on how often to save: no save was timed")]
    ranks = max(run.measures.ranks for one in ways.values() for run in one.runs)
    asked = command(overrides, ranks, file)
    if overrides.mtbf_s is None:
        return [_line("answer", RATE_NEEDED), _line("", f"name it: {asked} with {EXAMPLES}")]
    lines: list[str] = []
    for one, way in zip(known, ways.values()):
        told = (
            harmless(interval_lines)(one, overrides, way.runs[0].measures)
            if _can_decide()
            else None
        )
        lines += [f"{one.name}: {line}" for line in told or ()]
    lines.append(f"how often to save: {asked}")
    return [_line("" if number else "answer", text) for number, text in enumerate(lines)]


def _can_decide() -> bool:
    """Whether ckptbench is installed beside the probe."""
    import importlib.util

    return importlib.util.find_spec("ckptbench") is not None


def with_quickest_baseline_step(known: Sequence[Costs], results: Sequence[Result]) -> list[Costs]:
    """The first with the step of the quickest baseline, if one counts: the training's own, whatever saves. The file of costs has the step of the first alone."""
    steps = [one.step for one in results if not one.setting.baseline and one.step]
    if not steps or not known:
        return list(known)
    quickest = min(steps, key=lambda one: one.mean)
    return [replace(known[0], step=_seconds(quickest)), *known[1:]]

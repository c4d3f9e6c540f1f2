"""The summary that is told at the end of a run."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

from ckptbench_probe.dangers import dangers
from ckptbench_probe.measures import Checkpoint, Measures
from ckptbench_probe.pointers import SYNCED_UNSEEN, synced
from ckptbench_probe.reading import ProbedRun
from ckptbench_probe.storage import NOT_SEEN, is_url
from ckptbench_probe.words import counted, duration, percent, size, spread

WIDTH = 14
GONE = "removed before that"
NOTHING = "no rank reported: the probe saw no process update a model. Python's options -I, -E and -S, `env -i` and a changed PYTHONPATH keep the probe out; so do optimizers that are not torch.optim's. docs/own-training.md says what to do"
"""What is said of a run that left no updates."""
FAILED = "no rank reported: the command failed ({how}) before the probe saw any process update a model. If it did train, docs/own-training.md says what keeps the probe out"
"""The same, where the command itself did not end well."""


def _line(name: str, text: str) -> str:
    return f"{name:<{WIDTH}}{text}"


def screen(run: ProbedRun, measures: Measures, answer: list[str], failed: str = "") -> list[str]:
    """Ten to twelve lines. `answer`: how often to save. `failed`: how the command ended, where that was not well."""
    if not run.trained:
        saves = (
            f" ({counted(measures.other_saves, 'save')} by processes that train nothing)"
            if measures.other_saves
            else ""
        )
        return [(FAILED.format(how=failed) if failed else NOTHING) + saves]
    lines = [_line("training", _training(measures))]
    if measures.checkpoints:
        lines += [_line(name, text) for name, text in _costs(run, measures)]
    else:
        lines.append(
            _line(
                "checkpoints",
                "none seen: the run was too short to save, or its engine is unknown to the probe",
            )
        )
    lines += [_line("unsafe", text) for text in dangers(run, measures)]
    if measures.killed:
        lines.append(
            _line(
                "killed",
                f"{measures.killed} of {len(run.trained)} processes did not end by themselves: the numbers above stop there",
            )
        )
    return lines + [_line("" if number else "answer", text) for number, text in enumerate(answer)]


def _training(measures: Measures) -> str:
    step = (
        f", a step {duration(measures.step_s.median)} (median, without a save)"
        if measures.step_s
        else ""
    )
    text = f"{counted(measures.ranks, 'rank')}, {counted(measures.updates, 'step')} in {duration(measures.run_s)}{step}"
    if measures.skipped:
        text += f"; the scaler left out {counted(measures.skipped, 'update')}"
    if measures.backwards_per_update > 1.5:
        text += f"; {measures.backwards_per_update:.1f} backward passes a step"
    if measures.attempts > 1:
        text += f"; {measures.attempts} starts"
    return text


def _costs(run: ProbedRun, measures: Measures) -> Iterator[tuple[str, str]]:
    whole = [one for one in measures.checkpoints if not one.failed]
    yield "checkpoints", _which(measures)
    if measures.stall:
        yield "stall", f"{spread(measures.stall)}: each save stops the slowest rank for this long"
    if measures.slowdown:
        yield (
            "slowdown",
            f"{spread(measures.slowdown)}: steps are slower during a save, in addition to the stall",
        )
    if measures.finished:
        yield "finished", f"{spread(measures.finished)} after the start, as the engine reports"
    if whole:
        yield "to storage", _on_storage(measures, whole)
        if not all(is_url(save.path) for one in run.trained for save in one.saves):
            yield "synced", _synced(run)
        yield "bytes", _bytes(measures, whole)
    if measures.share is not None:
        yield "share", f"{percent(measures.share)} of the run went to checkpoints"


def _which(measures: Measures) -> str:
    shown = measures.checkpoints
    kinds = ", ".join(sorted({kind for one in shown for kind in one.kinds}))
    every = f", every {counted(measures.interval_steps, 'step')}" if measures.interval_steps else ""
    path = shown[-1].paths[0]
    where = (
        f"{os.path.dirname(path)}{f' ({shown[-1].file_system})' if shown[-1].file_system else ''}"
    )
    return f"{len(shown)}{every}, by {kinds}, to {where}"


def _on_storage(measures: Measures, whole: list[Checkpoint]) -> str:
    if {one.clean for one in whole} == {NOT_SEEN}:
        return NOT_SEEN
    if measures.clean is None:
        found = Counter(GONE if one.clean == "gone" else one.clean for one in whole)
        of = f" of {len(whole)}"
        states = [
            state + f" ({number}{of})" * (len(found) > 1) for state, number in found.most_common()
        ]
        return f"not seen whether the kernel wrote the files: {', '.join(states)}"
    seen = {one.clean for one in whole if one.clean_s is not None}
    text = f"{' or '.join(sorted(seen))} {spread(measures.clean)} after the start"
    others = len(whole) - measures.clean.number
    return text + (f"; of {others} not seen" if others else "")


def _synced(run: ProbedRun) -> str:
    files = synced(run)
    strace = ", as strace shows" if run.by_strace is not None else ""
    if not files and strace:
        return f"none{strace}"
    if not files and any(save.kind in SYNCED_UNSEEN for one in run.trained for save in one.saves):
        return "not seen: the engine syncs in C++, where Python shows nothing"
    if not files:
        return "none seen from Python"
    names = sorted(
        {os.path.splitext(event["path"])[1] or os.path.basename(event["path"]) for event in files}
    )
    return f"{counted(len(files), 'sync')} by the program or its engine, of {', '.join(names[:4])}{strace}"


def _bytes(measures: Measures, whole: list[Checkpoint]) -> str:
    last = whole[-1]
    text = "no file left to measure" if last.clean != NOT_SEEN else "files not seen"
    if last.files:
        text = f"{size(last.size)} in {counted(last.files, 'file')}"
    if last.bytes:
        text += f"; tensors {_types(last.bytes)}"
    if measures.state:
        parts = {name: sum(types.values()) for name, types in measures.state.items()}
        slots = sum(parts.values()) - parts.get("weights", 0)
        text += f"; the state has {size(parts.get('weights', 0))} of weights and {size(slots)} of the optimizer"
    if last.memory_bytes > last.size / 10:
        text += f"; {size(last.memory_bytes)} more memory"
    return text


def _types(sizes: dict[str, int]) -> str:
    return ", ".join(
        f"{name} {size(value)}"
        for name, value in sorted(sizes.items(), key=lambda one: -one[1])[:3]
    )

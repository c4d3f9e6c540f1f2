"""What is written and told when a run has ended."""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ckptbench_probe import chrome
from ckptbench_probe.answer import Overrides, answer
from ckptbench_probe.costs import Costs, costs, text
from ckptbench_probe.dangers import dangers
from ckptbench_probe.harmless import say_lines
from ckptbench_probe.measures import Measures, measure
from ckptbench_probe.reading import ProbedRun, UnreadableError, read
from ckptbench_probe.screen import screen

SUMMARY_FORMAT = 1
COSTS = "costs.yaml"
LONGEST_WAIT_S = 10.0
"""For the ranks of other launchers."""


def summarize(
    folder: Path, *, run: str | None = None, overrides: Overrides | None = None, failed: str = ""
) -> bool:
    """Whether there was a rank to tell of. `failed`: how the command ended, where that was not well. Files go into the folder; the lines go to standard error, as standard output is the training's."""
    overrides = overrides or Overrides()
    try:
        probed = read(folder, run)
    except UnreadableError as error:
        say_lines([str(error)])
        return False
    overrides = overrides.or_kept(folder, probed.name)
    measures = measure(probed)
    known = costs(measures, down_s=overrides.restart_s)
    lines = screen(probed, measures, answer(known, overrides, measures, folder / COSTS), failed)
    if probed.others and run is None:
        lines.append(
            f"{probed.others} more runs lie in {folder}: `ckptbench-probe summary --run NAME` shows another"
        )
    try:
        _write(folder, probed, measures, known, overrides)
    except OSError as error:
        lines.append(
            f"{folder} cannot be written to ({error.strerror}): there is no summary.json, costs.yaml and trace.json"
        )
    say_lines(lines)
    return bool(probed.trained)


def wait_for_ranks(folder: Path, run: str, ranks: int) -> None:
    """Until the traces of all have an end, where each rank has a launcher of its own and the first one's tells of all. Not for killed ones."""
    until = time.monotonic() + LONGEST_WAIT_S
    while time.monotonic() < until:
        trained = read(folder, run).trained
        ended = sum(one.ended_ns is not None for one in trained)
        if not trained or ended >= ranks:
            return
        time.sleep(0.1)


def _write(
    folder: Path, run: ProbedRun, measures: Measures, known: Costs | None, overrides: Overrides
) -> None:
    if not run.trained:
        return
    _put(
        folder / "summary.json",
        json.dumps(content(run, measures, known, overrides), indent=1) + "\n",
    )
    if known is not None:
        title = os.path.basename((run.trained[0].command or ("",))[0]) or "my training"
        _put(folder / COSTS, text(known, title=title, gpus=overrides.gpus or measures.ranks))
    chrome.write(run, folder / "trace.json")


def _put(path: Path, content: str) -> None:
    path.write_text(content, encoding="utf-8")


def content(
    run: ProbedRun, measures: Measures, known: Costs | None, overrides: Overrides
) -> dict[str, Any]:
    """Of summary.json; docs/own-training.md says what each name means. NaN is written as null."""
    found = {
        "format": SUMMARY_FORMAT,
        "run": run.name,
        **asdict(measures),
        "costs": None if known is None else asdict(known),
        "mtbf_s": overrides.mtbf_s,
        "unsafe": dangers(run, measures),
    }
    return _without_nan(found)  # type: ignore[no-any-return]


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value

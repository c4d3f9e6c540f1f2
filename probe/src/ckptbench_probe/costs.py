"""The file of costs that `ckptbench decide --costs` and `make decide NUMBERS=` read."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ckptbench_probe.measures import Measures
from ckptbench_probe.statistics import Seconds, seconds

GIVEN = "as you say"
MEASURED = (
    "from the start of a process to its first step, as measured: detection and waiting come on top"
)
UNKNOWN = "not measured"
UNKNOWN_DOWN_S = 600.0
"""Until training goes on after a failure, where no start was seen."""


@dataclass(frozen=True)
class Costs:
    """What one checkpoint costs this training, in seconds."""

    name: str
    step: Seconds
    stall: Seconds
    """Of saves in the foreground: with all that the same gap has beyond a step, as gathering of the state."""
    durable: Seconds
    """From the start until the engine has finished, its own syncs included. When the kernel writes back what nobody syncs is its own choice, up to 35 s later."""
    slowdown_s: float
    """What steps beside a save lose; 0 of saves in the foreground."""
    bytes: int
    background: bool
    """Whether saves go on beside the steps."""
    interval_steps: int
    down_s: float
    """From a failure until training goes on."""
    down_from: str
    """Where that is from."""


def costs(measures: Measures, *, down_s: float | None = None) -> Costs | None:
    """`down_s`: until training goes on after a failure, if the user knows it. None where nothing can be decided: no step, or no whole checkpoint."""
    whole = [one for one in measures.checkpoints if not one.failed]
    if measures.step_s is None or not whole:
        return None
    background = any(one.background for one in whole)
    # The first one starts helpers and allocates what the others find there, which a long training pays once.
    steady = whole[1:] or whole
    known = [one.slowdown_s for one in steady if one.slowdown_s is not None]
    # Of single checkpoints it is noise as well, on both sides of 0.
    slowdown_s = max(fmean(known), 0.0) if known else 0.0
    stalls = [one.stall_s + (0.0 if background else slowdown_s) for one in steady]
    ends = [max(stall, one.finished_s or stall) for one, stall in zip(steady, stalls)]
    stall, durable = seconds(stalls), seconds(ends)
    assert stall is not None
    assert durable is not None
    return Costs(
        name=" and ".join(sorted({kind for one in whole for kind in one.kinds})),
        step=measures.step_s,
        stall=stall,
        durable=durable,
        slowdown_s=slowdown_s if background else 0.0,
        bytes=whole[-1].size,
        background=background,
        interval_steps=max(1, round(measures.interval_steps or measures.updates or 1)),
        down_s=down_s or measures.start_s or UNKNOWN_DOWN_S,
        down_from=GIVEN if down_s else MEASURED if measures.start_s else UNKNOWN,
    )


def text(costs: Costs, *others: Costs, title: str, gpus: int) -> str:
    """The file's content. `others`: other ways to save; steps, interval and restart are those of the first."""
    lines = [
        "# Measured by ckptbench-probe. Times are in seconds, with their 95 % intervals.",
        f"title: {json.dumps(title)}",
        f"gpus: {gpus}",
        f"step_s: {_uncertain(costs.step)}",
        "# The training has no epochs that the probe sees: an epoch is the interval in use.",
        f"steps_per_epoch: {costs.interval_steps}",
        f"interval: {costs.interval_steps} steps",
        "strategies:",
        *(line for one in (costs, *others) for line in _strategy(one)),
        "recoveries:",
        f"  # {costs.down_from}.",
        "  - name: restart",
        f"    down_s: {costs.down_s:.6g}",
    ]
    return "\n".join(lines) + "\n"


def _strategy(costs: Costs) -> list[str]:
    fields: dict[str, Any] = {
        "stall_s": _uncertain(costs.stall),
        "durable_s": _uncertain(costs.durable),
        "slowdown_s": f"{costs.slowdown_s:.6g}",
    }
    if costs.bytes:
        fields["bytes"] = costs.bytes
    return [
        f"  - name: {json.dumps(costs.name)}",
        *(f"    {name}: {value}" for name, value in fields.items()),
    ]


def _uncertain(times: Seconds) -> str:
    if math.isnan(times.lo) or times.lo <= 0:
        return f"{times.mean:.6g}"
    # Rounded outwards, so that the ends never cross the value.
    digits = 9
    return (
        f"{{value: {times.mean:.{digits}g}, lo: {times.lo:.{digits}g}, hi: {times.hi:.{digits}g}}}"
    )

"""How often to save: by ckptbench where it is importable, else the command that asks it."""

from __future__ import annotations

import importlib
import importlib.util
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckptbench_probe.costs import Costs
from ckptbench_probe.harmless import harmless
from ckptbench_probe.measures import Measures
from ckptbench_probe.words import counted, duration, percent

LLAMA3_GPU_HOURS = 16_384 * 54 * 24 / 419
"""Mean GPU-hours between unexpected interruptions: 419 in 54 days on 16,384 H100 (Grattafiori et al. 2024, The Llama 3 Herd of Models,
arXiv:2407.21783, section 3.3.4)."""


@dataclass(frozen=True)
class Failures:
    """How often the job fails."""

    mtbf_s: float
    source: str


@dataclass(frozen=True)
class Wishes:
    """What the user names; None: what was measured, or a published rate."""

    gpus: int | None = None
    mtbf_s: float | None = None
    restart_s: float | None = None


def failures(wishes: Wishes, ranks: int) -> Failures:
    if wishes.mtbf_s is not None:
        return Failures(wishes.mtbf_s, "as you say")
    gpus = wishes.gpus or ranks
    return Failures(
        3600 * LLAMA3_GPU_HOURS / gpus, f"the rate of Llama 3's training, on {counted(gpus, 'GPU')}"
    )


def answer(costs: Costs | None, wishes: Wishes, measures: Measures, file: Path) -> list[str]:
    """One line; none where nothing was saved. `file`: that of the costs."""
    if costs is None and not measures.checkpoints:
        return []
    if costs is None:
        return [
            "how often to save cannot be told: a save was under way in every step. Measure with fewer saves"
        ]
    sentence = None
    if importlib.util.find_spec("ckptbench") is not None:
        sentence = harmless(_sentence)(costs, failures(wishes, measures.ranks))
    return [sentence or f"how often to save: {command(wishes, measures.ranks, file)}"]


def command(wishes: Wishes, ranks: int, file: Path) -> str:
    """That asks ckptbench with the measured numbers, wherever it is installed."""
    rate = "--rate llama3" if wishes.mtbf_s is None else f"--mtbf {wishes.mtbf_s:.6g}s"
    return f"ckptbench decide --costs {shlex.quote(str(file))} {rate} --gpus {wishes.gpus or ranks} --save-steps"


def _sentence(costs: Costs, often: Failures) -> str:
    model: Any = importlib.import_module("ckptbench.decide.model")
    saving = model.Saving(
        stall_s=costs.stall.mean, durable_s=costs.durable.mean, slowdown_s=costs.slowdown_s
    )
    recovering = model.Recovering(down_s=costs.down_s)
    rate = 1 / often.mtbf_s
    step = costs.step.mean
    best = model.best(saving, recovering, rate, step_s=step)
    steps = int(best.steps)
    loses = 1 - float(best.goodput)
    today = 1 - float(model.goodput(costs.interval_steps * step, saving, recovering, rate))
    return (
        f"save every {counted(steps, 'step')} ({duration(steps * step)}): save_steps={steps}, which loses {percent(loses)}; today's"
        f" {counted(costs.interval_steps, 'step')} lose {percent(today)}, at a failure every {duration(often.mtbf_s)} ({often.source})"
    )

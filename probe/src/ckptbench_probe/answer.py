"""How often to save: by ckptbench where it is importable, else the command that asks it."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
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


def answer(costs: Costs | None, wishes: Wishes, measures: Measures) -> list[str]:
    """One line; none where nothing was saved."""
    if costs is None and not measures.checkpoints:
        return []
    if costs is None:
        return [
            "how often to save cannot be told: a save was under way in every step. Measure with fewer saves"
        ]
    often = failures(wishes, measures.ranks)
    sentence = None
    if importlib.util.find_spec("ckptbench") is not None:
        sentence = harmless(_sentence)(costs, wishes, often)
    return [sentence or f"how often to save: {command(costs, wishes, often)}"]


def command(costs: Costs, wishes: Wishes, often: Failures) -> str:
    """That asks `ckptbench decide` with the measured numbers."""
    stall, durable = costs.stall.mean, costs.durable.mean
    later = costs.background and durable > stall
    saves = f"--async {stall:.4g}s+{durable - stall:.4g}s" if later else f"--blocking {stall:.4g}s"
    now = costs.interval_steps * costs.step.mean
    return (
        f"ckptbench decide --mtbf {_plain(often.mtbf_s / 3600)}h --step {costs.step.mean:.4g}s {saves}"
        f" --restart {wishes.restart_s or costs.down_s:.4g}s --now {now:.4g}s --save-steps"
    )


def _plain(number: float) -> str:
    """Four digits, without an exponent."""
    return f"{number:.4g}" if number < 10_000 else f"{number:.0f}"


def _sentence(costs: Costs, wishes: Wishes, often: Failures) -> str:
    model: Any = importlib.import_module("ckptbench.decide.model")
    saving = model.Saving(
        stall_s=costs.stall.mean, durable_s=costs.durable.mean, slowdown_s=costs.slowdown_s
    )
    recovering = model.Recovering(down_s=wishes.restart_s or costs.down_s)
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

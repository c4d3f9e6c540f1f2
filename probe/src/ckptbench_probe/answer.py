"""How often to save: by ckptbench where it is importable, else the command that asks it."""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ckptbench_probe import programs
from ckptbench_probe.costs import Costs
from ckptbench_probe.harmless import harmless
from ckptbench_probe.measures import Measures
from ckptbench_probe.words import as_option, counted, duration, percent

RATE_NEEDED = "how often to save depends on how often the job fails"
OPTIONS = "options-{}.json"
"""The file of a run's own values."""
HOURS = (1, 10, 100)
"""Between two failures, of the table where no rate is known."""
BEST = "best"
"""The name of the run's saves."""
ENGINES = (
    ("transformers", ("hf",)),
    ("lightning", ("lightning",)),
    ("orbax", ("orbax",)),
    ("dcp", ("torchtitan", "megatron")),
)
"""Parts of the names of engines, with programs that save by them."""
WIDTH = 80
EXAMPLES = "--mtbf 14h (between two failures of the job), --gpu-mtbf 50000h (of one GPU) or --log jobs.txt (your scheduler's jobs)"


@dataclass(frozen=True)
class Overrides:
    """The user's own values, in place of measured or unknown ones (None)."""

    gpus: int | None = None
    mtbf_s: float | None = None
    restart_s: float | None = None
    tool: str | None = None
    """The program whose settings are asked for."""

    def keep(self, folder: Path, run: str) -> None:
        """For summaries of this run. It may be killed, so this is written as it begins."""
        folder.joinpath(OPTIONS.format(run)).write_text(json.dumps(asdict(self)), encoding="utf-8")

    def or_kept(self, folder: Path, run: str) -> Overrides:
        """With those that the run was started with where these are unknown."""
        try:
            kept = json.loads(folder.joinpath(OPTIONS.format(run)).read_text(encoding="utf-8"))
        except (OSError, ValueError):  # of an earlier version, or torn
            return self
        own = {name: value for name, value in asdict(self).items() if value is not None}
        return Overrides(**{**kept, **own})


def answer(costs: Costs | None, overrides: Overrides, measures: Measures, file: Path) -> list[str]:
    """Lines; none where nothing was saved. `file`: that of the costs."""
    if not measures.checkpoints:
        return []
    if all(one.failed for one in measures.checkpoints):
        return ["no answer on how often to save: every save failed"]
    if costs is None or not costs.step.mean:
        return [
            "no answer on how often to save: every step overlapped a save. Measure with fewer saves"
        ]
    lines = None
    if importlib.util.find_spec("ckptbench") is not None:
        lines = harmless(interval_lines)(costs, overrides, measures)
    asked = command(overrides, measures.ranks, file)
    if overrides.mtbf_s is None:
        return [*(lines or [RATE_NEEDED]), f"name it: {asked} with {EXAMPLES}"]
    return lines or [f"how often to save: {asked}"]


def command(overrides: Overrides, ranks: int, file: Path) -> str:
    """That asks ckptbench with the measured numbers, wherever it is installed."""
    rate = "" if overrides.mtbf_s is None else f" --mtbf {as_option(overrides.mtbf_s)}"
    tool = "" if overrides.tool is None else f" --for {overrides.tool}"
    return f"ckptbench decide --costs {shlex.quote(str(file))}{rate} --gpus {overrides.gpus or ranks} --save-steps{tool}"


def interval_lines(costs: Costs, overrides: Overrides, measures: Measures) -> list[str]:
    updates, today = measures.updates, counted(costs.interval_steps, "step")
    if overrides.mtbf_s is None:
        row = "{:<16}{:<26}{:<9}{:<24}{}"
        rows = [("failure every", "save every", "loses", f"today's {today} lose", "")]
        for hours in HOURS:
            steps, loses, now = _best(costs, 3600.0 * hours)
            rows.append((f"{hours} h", _every(costs, steps), percent(loses), percent(now), _longer(steps, updates)))  # fmt: skip
        return [f"{RATE_NEEDED}:", *(row.format(*one).rstrip() for one in rows)]
    steps, _, _ = _best(costs, overrides.mtbf_s)
    longer = _longer(steps, updates)
    return [
        *_table(costs, overrides, measures.ranks),
        f"{longer + '; a longer training: ' if longer else ''}save every {_every(costs, steps)}",
        *_pasted(costs, overrides.tool, steps),
        f"failures: one in {duration(overrides.mtbf_s)}, as you say; now is every {today}",
    ]


def _pasted(costs: Costs, tool: str | None, steps: int) -> list[str]:
    """All settings of the program that is asked for; else how the likeliest two are told the interval."""
    of = {
        each: programs.rows(each, steps=steps, interval_s=steps * costs.step.mean, stop_s=costs.durable.mean + costs.step.mean, is_async=costs.background)
        for each in ([tool] if tool else likely(costs))
    }  # fmt: skip
    if tool:
        return [f"paste: {name}: {text}" for name, text in of[tool]]
    return ["paste: " + "; ".join(f"{name}: {text}" for (name, text), *_ in of.values())]


def likely(costs: Costs) -> list[str]:
    """The programs that most probably saved, by the engine that did."""
    for engine, tools in ENGINES:
        if engine in costs.name:
            return [*tools]
    return ["torchtitan", "megatron"] if costs.background else ["hf", "lightning"]


def _table(costs: Costs, overrides: Overrides, ranks: int) -> list[str]:
    """The answer as ckptbench prints it for every way in."""
    model: Any = importlib.import_module("ckptbench.decide.model")
    layout: Any = importlib.import_module("ckptbench.report.answer.layout")
    choices: Any = importlib.import_module("ckptbench.report.answer.choice")
    number = importlib.import_module("ckptbench.report.answer.quantities").Quantity
    parts: Any = importlib.import_module("ckptbench.decide.costs")
    saving = parts.Saving(
        stall_s=costs.stall.mean, durable_s=costs.durable.mean, slowdown_s=costs.slowdown_s
    )
    recovering, step = parts.Recovering(down_s=costs.down_s), costs.step.mean
    rate = 1 / (overrides.mtbf_s or math.inf)
    best = model.best(saving, recovering, rate, step_s=step)

    def choice(steps: float, useful: float, **more: Any) -> Any:
        return choices.Choice(name=BEST, steps=number(steps), interval_s=number(steps * step), loses=number(1 - useful), **more)  # fmt: skip

    used = float(model.goodput(costs.interval_steps * step, saving, recovering, rate))
    fine = choices.fine_steps(float(best.fine_from_steps), float(best.fine_to_steps))
    saved = 24 * (overrides.gpus or ranks) * (float(best.goodput) - used)
    now = choice(costs.interval_steps, used)
    found = choice(float(best.steps), float(best.goodput), fine_steps=fine, saves=number(saved), now=now)  # fmt: skip
    unit = "GPU" if overrides.gpus else "rank"
    return [line.text for line in layout.table([layout.Block(choices=(found,))], WIDTH, unit)]


def _longer(steps: int, updates: int) -> str:
    """No interval is longer than the training, if this was all of it."""
    if steps <= updates:
        return ""
    return (
        f"the best interval is longer than these {counted(updates, 'step')}: save once, at the end"
    )


def _every(costs: Costs, steps: int) -> str:
    return f"{counted(steps, 'step')} ({duration(steps * costs.step.mean)})"


def _best(costs: Costs, mtbf_s: float) -> tuple[int, float, float]:
    """A round number of steps between two saves, what they lose, and what today's interval does."""
    model: Any = importlib.import_module("ckptbench.decide.model")
    parts: Any = importlib.import_module("ckptbench.decide.costs")
    saving = parts.Saving(
        stall_s=costs.stall.mean, durable_s=costs.durable.mean, slowdown_s=costs.slowdown_s
    )
    recovering = parts.Recovering(down_s=costs.down_s)
    rate, step = 1 / mtbf_s, costs.step.mean
    best = model.best(saving, recovering, rate, step_s=step)
    now = model.goodput(costs.interval_steps * step, saving, recovering, rate)
    fine = float(best.fine_from_steps), float(best.fine_to_steps)  # NaN where none is
    steps = model.rounded(int(best.steps), fine)
    useful = model.goodput(steps * step, saving, recovering, rate)
    return steps, 1 - float(useful), 1 - float(now)

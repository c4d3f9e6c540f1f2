"""The answer from costs in a table: those that a study measured, or those of a user's file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import pandas as pd

from ckptbench.analysis.tables.grouping import records
from ckptbench.analysis.tables.store import read_tables
from ckptbench.answer import STUDY_TABLES
from ckptbench.answer.screen import text
from ckptbench.answer.study import screen, shown
from ckptbench.commands.asked import Asked
from ckptbench.commands.case import Choice, Known
from ckptbench.commands.of_log import LogCosts, setting
from ckptbench.commands.told import Told
from ckptbench.commands.usual import usual
from ckptbench.decide.advice import advice
from ckptbench.decide.decision import left_out
from ckptbench.decide.given import read_given
from ckptbench.decide.inputs import DECISION_COSTS, GIVEN
from ckptbench.decide.projection import projected
from ckptbench.decide.rate_tables import failure_rates
from ckptbench.decide.rates import FailureRate
from ckptbench.decide.units import SECONDS_PER_HOUR, SECONDS_PER_MINUTE
from ckptbench.errors import ConfigError
from ckptbench.matrix.interval import Interval

VALIDATION = "validation"
NO_STUDY: Mapping[str, pd.DataFrame] = {VALIDATION: pd.DataFrame()}


def told(asked: Asked) -> Told:
    """The answer as the screen of a study. Raises ConfigError, DataError or RunFolderError where a file cannot be read."""
    costs = costs_of(asked)
    gpus = asked.gpus or costs.gpus
    rate = asked.failure_rate(gpus)
    tables = decided(costs, rate, gpus)
    choices = tuple(map(_choice, records(shown(tables))))
    of_study = screen(tables)
    notes = (setting(choices), *costs.notes) if costs.notes else ()
    shown_screen = replace(of_study, verdict=(*filter(None, notes), *of_study.verdict), ending=())
    return Told(
        text=text(shown_screen),
        gpus=gpus,
        failures_per_s=gpus / (rate.mean_gpu_hours * SECONDS_PER_HOUR),
        choices=choices,
        remarks=(*shown_screen.verdict, *shown_screen.remarks),
    )


def costs_of(asked: Asked) -> Costs:
    """Those of the study, file or log, with what the options say in their place."""
    if asked.training_log is not None:
        told = LogCosts.of(asked)
        return Costs(told.table, NO_STUDY, told.notes)
    return Costs.of(asked.study, asked.costs).with_own(asked)


def decided(costs: Costs, rate: FailureRate, gpus: int) -> Mapping[str, pd.DataFrame]:
    """The tables of the decision, for one failure rate and number of GPUs. Raises ConfigError where the costs are of more GPUs."""
    choices = usual(rate=rate.name, gpus=(gpus,))
    if fewer := left_out(costs.table, choices):
        raise ConfigError(fewer[0].replace("decision.gpus has", "--gpus is"))
    every = advice(costs.table, [rate], choices)
    return {
        **costs.others,
        DECISION_COSTS.name: costs.table,
        "failure_rates": failure_rates([rate]),
        "advice": every[every["gpus"] == gpus],
        "scale": every[["rate"]],  # of which the screen takes the rate that was chosen
    }


@dataclass(frozen=True, slots=True)
class Costs:
    """The table `decision_costs`, and of a study those that say whether to believe it."""

    table: pd.DataFrame
    others: Mapping[str, pd.DataFrame]
    notes: tuple[str, ...] = ()
    """Sentences on where they are from, for the top of the screen."""

    @classmethod
    def of(cls, study: Path | None, file: Path | None) -> Self:
        """From the folder of a study's tables, or from a user's file. Raises ConfigError or RunFolderError."""
        if study is not None:
            if not (study / f"{DECISION_COSTS.name}.parquet").exists():
                raise ConfigError(
                    f"{study} has no tables of a study: name its folder results/tables, or make one first (make study)"
                )
            others = read_tables(study, (DECISION_COSTS.name, VALIDATION, *STUDY_TABLES))
            return cls(others.pop(DECISION_COSTS.name), others)
        assert file is not None
        return cls(read_given(file), NO_STUDY)

    @property
    def gpus(self) -> int:
        """The most that they are of."""
        return int(self.table["ranks"].max())

    def with_own(self, asked: Asked) -> Self:
        """With what the reader gives in place of what the table says: a step, a restart on so many GPUs as are asked for, and an interval in use."""
        gpus = asked.gpus or self.gpus
        rows = records(self.table[self.table["foremost"]])
        return replace(self, table=DECISION_COSTS.rows(_with_own(row, asked, gpus) for row in rows))


def _with_own(row: Mapping[str, Any], asked: Asked, gpus: int) -> dict[str, Any]:
    own = dict(row)
    if asked.step is not None:
        own |= _exactly("step_s", asked.step)
    if asked.restart is not None:
        # Projecting makes that of it which the reader gives.
        grown = projected({**row, "down_s": 1.0}, gpus)["down_s"]
        own |= {**_exactly("down_s", asked.restart / grown), "down_from": GIVEN}
    if asked.now is not None:
        own["interval"] = str(Interval("steps", asked.now.in_steps(own["step_s"])))
    return own


def _exactly(name: str, value: float) -> dict[str, float]:
    return dict.fromkeys((name, f"{name}_lo", f"{name}_hi"), value)


def _choice(row: Mapping[str, Any]) -> Choice:
    """A row of the screen."""
    step_s = row["best_minutes"] * SECONDS_PER_MINUTE / row["best_steps"]
    now = Choice(
        name=row["name"],
        steps=Known(row["in_use_steps"]),
        interval_s=Known(row["in_use_steps"] * step_s),
        loses=_lost(row, "goodput_in_use"),
    )
    return Choice(
        name=row["name"],
        steps=_known(row, "best_steps"),
        interval_s=_known(row, "best_minutes", SECONDS_PER_MINUTE),
        loses=_lost(row, "goodput"),
        fine_steps=(int(row["fine_from_steps"]), int(row["fine_to_steps"])),
        saves_gpu_hours=row["saved_gpu_hours"],
        now=now,
    )


def _known(row: Mapping[str, Any], name: str, scale: float = 1.0) -> Known:
    return Known(*(scale * row[f"{name}{end}"] for end in ("", "_lo", "_hi")))


def _lost(row: Mapping[str, Any], name: str) -> Known:
    return Known(*(1 - row[f"{name}{end}"] for end in ("", "_hi", "_lo")))

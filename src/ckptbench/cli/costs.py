"""The costs of a study or of a user's file, with what the reader gives in their place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import pandas as pd

from ckptbench.analysis.tables.grouping import records
from ckptbench.cli.options import Options
from ckptbench.cli.printed import Settings
from ckptbench.common.errors import ConfigError
from ckptbench.decide.inputs import DECISION_COSTS, GIVEN
from ckptbench.decide.projection import projected
from ckptbench.decide.user_costs import read_user_costs
from ckptbench.matrix.interval import Interval
from ckptbench.report.answer import STUDY_TABLES


@dataclass(frozen=True, slots=True)
class Costs:
    """The table `decision_costs`, and of a study those that say whether to believe it."""

    table: pd.DataFrame
    others: Mapping[str, pd.DataFrame]
    title: str = ""
    """Of the file."""
    facts: tuple[str, ...] = ()
    """Of a log: a step, a save and a restart."""
    cautions: tuple[str, ...] = ()
    """Sentences on what a log does not tell."""
    notes: tuple[str, ...] = ()
    """Sentences on what was read."""
    training_steps: int | None = None
    """Of the whole training, where its log says it."""
    settings: Settings | None = None
    """How the program whose log was read is told the interval. None: any program."""
    multiple_of: int | None = None
    restart_s: float | None = None
    """Of a log, or in its place."""
    gpus_from: str = ""
    """Where their number was read, if no option and no training log says it."""

    @classmethod
    def of(cls, study: Path | None, file: Path | None) -> Self:
        """From the folder of a study's tables, or from a user's file. Raises ConfigError or RunFolderError."""
        if study is not None:
            if not (study / f"{DECISION_COSTS.name}.parquet").exists():
                raise ConfigError(
                    f"{study} has no tables of a study: name its folder results/tables, or make one first (make study)"
                )
            from ckptbench.analysis.tables.store import read_tables

            others = read_tables(study, (DECISION_COSTS.name, *STUDY_TABLES))
            return cls(others.pop(DECISION_COSTS.name), others)
        assert file is not None
        table = read_user_costs(file)
        return cls(table, {}, title=str(table["model"].iloc[0]))

    @property
    def gpus(self) -> int:
        """The most that they are of."""
        return int(self.table["ranks"].max())

    def with_own(self, options: Options) -> Self:
        """With what the reader gives in place of what the table says: a step, a restart on so many GPUs as are asked for, and an interval in use."""
        gpus = options.gpus or self.gpus
        rows = records(self.table[self.table["representative"]])
        return replace(
            self, table=DECISION_COSTS.rows(_with_own(row, options, gpus) for row in rows)
        )


def _with_own(row: Mapping[str, Any], options: Options, gpus: int) -> dict[str, Any]:
    own = dict(row)
    if options.step is not None:
        own |= _exactly("step_s", options.step)
    if options.restart is not None:
        # Projecting makes that of it which the reader gives.
        grown = projected({**row, "down_s": 1.0}, gpus)["down_s"]
        own |= {**_exactly("down_s", options.restart / grown), "down_from": GIVEN}
    if options.now is not None:
        own["interval"] = str(Interval("steps", options.now.in_steps(own["step_s"])))
    return own


def _exactly(name: str, value: float) -> dict[str, float]:
    return dict.fromkeys((name, f"{name}_lo", f"{name}_hi"), value)

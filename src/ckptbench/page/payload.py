"""What the page starts from, as plain values for JSON: the costs, the failure rates, and the draws of both."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ckptbench.analysis.tables.grouping import records
from ckptbench.answer.labels import counted, describe
from ckptbench.answer.setups import SEPARATOR, in_words
from ckptbench.decide import drawn
from ckptbench.decide.choices import Choices
from ckptbench.decide.inputs import GIVEN, UNCERTAIN
from ckptbench.decide.model import best
from ckptbench.decide.rates import FailureRate
from ckptbench.errors import ConfigError
from ckptbench.figures.kit.decided import of_most_ranks, prepared
from ckptbench.matrix.interval import Interval

Row = dict[str, Any]


class _Draws:
    """The draws of all numbers, each kept once. Rows of one setup share many."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}

    def place(self, values: NDArray[np.float64]) -> int | None:
        """Where the draws of this number are: all values but the estimate, which comes first. None if they are all the same as that."""
        if (values == values[0]).all():
            return None
        text = base64.b64encode(values[1:].astype("<f8").tobytes()).decode("ascii")
        return self.texts.setdefault(text, len(self.texts))


def payload(costs: pd.DataFrame, rates: Sequence[FailureRate], choices: Choices) -> dict[str, Any]:
    """From the table `decision_costs`. Raises ConfigError where the chosen rate is none of `rates`."""
    names = [rate.name for rate in rates]
    if choices.rate not in names:
        raise ConfigError(f"decision.rate is {choices.rate}: use one of {', '.join(sorted(names))}")
    draws = _Draws()
    rows = _named(costs) if len(costs) else []
    return {
        "rows": [_row(row, choices, draws) for row in rows],
        "start": _start(rows, next(rate for rate in rates if rate.name == choices.rate), choices),
        "rates": [_rate(rate, draws) for rate in rates],
        "choices": asdict(choices),
        "draws": list(draws.texts),
        "number_of_draws": drawn.DRAWS,
    }


def _named(costs: pd.DataFrame) -> list[Row]:
    """The rows in the order of figures, with the names that readers choose from."""
    known = prepared(costs[costs["foremost"]].assign(gpus=costs["ranks"]))
    of_checkpoint = [
        "strategy",
        *(name for name in ("format", "interval") if _is_needed(known, name)),
    ]
    unit = {True: "GPU", False: "rank"}
    counts = [
        counted(ranks, unit[framework == GIVEN])
        for ranks, framework in zip(known["ranks"], known["framework"], strict=True)
    ]
    return records(
        known.assign(
            setup=known["system"] + SEPARATOR + pd.Series(counts, known.index),
            strategy_name=in_words(known, of_checkpoint, ", "),
        )
    )


def _is_needed(rows: pd.DataFrame, column: str) -> bool:
    """Whether a strategy alone does not tell which row is meant."""
    return bool((rows.groupby(["system", "ranks", "strategy"])[column].nunique() > 1).any())


def _row(row: Row, choices: Choices, draws: _Draws) -> Row:
    epoch = int(row["steps_per_epoch"])
    return {
        "setup": row["setup"],
        "strategy": row["strategy_name"],
        "recovery": describe("recovery", row["recovery"]),
        "words": ", ".join(
            [
                row["system"].replace(SEPARATOR, ", "),
                describe("strategy", row["strategy"]),
                describe("recovery", row["recovery"]),
            ]
        ),
        "given": row["framework"] == GIVEN,
        "hardware": "" if row["framework"] == GIVEN else f" on {row['hardware']}",
        "ranks": int(row["ranks"]),
        "steps_per_epoch": epoch,
        "in_use_steps": Interval.parse(row["interval"]).steps(epoch),
        "costs": _costs(row, choices, draws),
        "slower": {
            "value": float(drawn.slower(row)[0]),
            "draws": draws.place(drawn.slower(row)),
        },
        "survived": {
            "value": float(row["survived"]),
            "draws": draws.place(drawn.survived(row)),
        },
        "replaces": bool(row["replaces"]),
        "shared_every": int(row["shared_every"]),
        "copied": bool(row["copied"]),
        "bytes": _or_null(row["bytes"]),
        "down_from": row["down_from"],
        "note": row["note"],
        "source": row["source"],
    }


def _costs(row: Row, choices: Choices, draws: _Draws) -> dict[str, Row]:
    """Value, ends and draws of each. The time until a replacement comes is left out of the pause: it depends on the number of GPUs."""
    saving = drawn.saving(row)
    recovering = drawn.recovering(row, 1, replace(choices, replacement_minutes=0.0))
    far = drawn.far(row, int(row["ranks"]), choices)
    values = {
        "step_s": drawn.step_s(row),
        "stall_s": saving.stall_s,
        "slowdown_s": saving.slowdown_s,
        "durable_s": saving.durable_s,
        "shared_durable_s": saving.durable_s if far is None else far.saving.durable_s,
        "down_s": recovering.down_s,
        "pause_s": recovering.pause_s,
    }
    assert values.keys() == UNCERTAIN.keys()
    return {
        name: {
            "value": float(drawings[0]),
            "lo": _or_null(row[f"{name}_lo"]),
            "hi": _or_null(row[f"{name}_hi"]),
            "draws": draws.place(drawings),
        }
        for name, drawings in ((name, np.asarray(each)) for name, each in values.items())
    }


def _rate(rate: FailureRate, draws: _Draws) -> Row:
    hours = 1 / (drawn.failures_per_s(rate, 1) * drawn.SECONDS_PER_HOUR)
    return {
        "name": rate.name,
        "title": rate.title,
        "source": rate.source,
        "projected": rate.is_projected,
        "mean_gpu_hours": rate.mean_gpu_hours,
        "draws": draws.place(hours),
    }


def _start(rows: Sequence[Row], rate: FailureRate, choices: Choices) -> int | None:
    """The row with the highest goodput at the number of ranks that was measured, of the first system and its most ranks."""
    if not rows:
        return None
    known = of_most_ranks(pd.DataFrame(rows))
    places = known.index[known["setup"] == known["setup"].iloc[0]]
    return int(max(places, key=lambda place: _highest(rows[place], rate, choices)))


def _highest(row: Row, rate: FailureRate, choices: Choices) -> float:
    gpus = int(row["ranks"])
    found = best(
        drawn.saving(row),
        drawn.recovering(row, gpus, choices),
        drawn.failures_per_s(rate, gpus),
        step_s=drawn.step_s(row) * drawn.slower(row),
        far=drawn.far(row, gpus, choices),
        slower=drawn.slower(row),
        fine=False,
    )
    return float(found.goodput[0])


def _or_null(value: float) -> float | None:
    """JSON has no NaN."""
    return float(value) if math.isfinite(value) else None

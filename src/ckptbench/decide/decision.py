"""All tables of the decision at once, from costs and failure rates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from ckptbench.analysis.tables.schema import Column, Table, with_ends
from ckptbench.config.decision import DecisionSection
from ckptbench.decide.advice import advice, goodput_curves, scale
from ckptbench.decide.rates import FailureRate

# fmt: off
FAILURE_RATES = Table(
    "failure_rates",
    "One row per failure rate: a file of config/failures.",
    ("rate",),
    (
        Column("rate", "text", "", "name of its file"),
        Column("title", "text", "", "name shown to readers"),
        Column("source", "text", "", "who published it; `own`: the user's"),
        Column("counts", "text", "", "what counts as a failure"),
        Column("gpus", "count", "1", "GPUs for which it was measured or projected"),
        Column("projected", "flag", "", "whether the source projected it to more GPUs than it measured"),
        Column("failures", "count", "1", "number counted; those within one restart of another are one"),
        *with_ends("mean_gpu_hours", "GPU h", "mean GPU-hours between failures, with the interval for the reader's machine; if none was seen, a third of the hours watched, a bound"),
    ),
)
# fmt: on


def left_out(costs: pd.DataFrame, choices: DecisionSection) -> list[str]:
    """A line for each number of GPUs that the user asks for, and that is below all numbers whose costs are known."""
    least = costs["ranks"].min()  # NaN where there are no costs
    return [
        f"decision.gpus has {gpus:,}, and the costs are of {least:,} GPUs or more, which cannot be projected to fewer: left out"
        for gpus in choices.gpus
        if gpus < least
    ]


def decide(costs: pd.DataFrame, rates: Sequence[FailureRate], choices: DecisionSection) -> dict[str, pd.DataFrame]:  # fmt: skip
    """By name. `costs` is the table `decision_costs`; `rates` has the one that is chosen."""
    (chosen,) = (rate for rate in rates if rate.name == choices.rate)
    return {
        "failure_rates": failure_rates(rates),
        "decision_costs": costs,
        "advice": advice(costs, rates, choices),
        "scale": scale(costs, chosen, choices),
        "goodput_curves": goodput_curves(costs, chosen, choices),
    }


def failure_rates(rates: Iterable[FailureRate]) -> pd.DataFrame:
    """A row for each rate."""
    return FAILURE_RATES.rows(
        {
            "rate": rate.name,
            "title": rate.file.title,
            "source": rate.source,
            "counts": rate.file.counts,
            "gpus": rate.file.gpus,
            "projected": rate.file.projected,
            "failures": rate.failures,
            "mean_gpu_hours": rate.mean_gpu_hours,
            "mean_gpu_hours_lo": rate.lo,
            "mean_gpu_hours_hi": rate.hi,
        }
        for rate in rates
    )

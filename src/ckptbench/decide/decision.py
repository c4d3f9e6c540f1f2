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
    "One row a failure rate: a file of config/failures.",
    ("rate",),
    (
        Column("rate", "text", "", "name of its file"),
        Column("title", "text", "", "what readers see"),
        Column("source", "text", "", "who published it; `own`: the user's"),
        Column("counts", "text", "", "what counts as a failure"),
        Column("gpus", "count", "1", "at how many GPUs it was seen, or to how many projected"),
        Column("projected", "flag", "", "whether the source computed it for more GPUs than it had seen"),
        Column("failures", "count", "1", "that were counted, those within one restart of another as one"),
        *with_ends("mean_gpu_hours", "GPU h", "mean GPU-hours between two failures, with the interval of the reader's machine; a third of the hours watched, which is a bound, where none was seen"),
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

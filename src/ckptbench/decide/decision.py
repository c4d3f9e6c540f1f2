"""All tables of the decision at once, from costs and failure rates."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ckptbench.decide.advice import advice, goodput_curves, scale
from ckptbench.decide.choices import Choices
from ckptbench.decide.rate_tables import failure_rates
from ckptbench.decide.rates import FailureRate


def left_out(costs: pd.DataFrame, choices: Choices) -> list[str]:
    """A line for each number of GPUs that the user asks for, and that is below all numbers whose costs are known."""
    least = costs["ranks"].min()  # NaN where there are no costs
    return [
        f"decision.gpus has {gpus:,}, and the costs are of {least:,} GPUs or more: they are not projected to fewer, so it is left out"
        for gpus in choices.gpus
        if gpus < least
    ]


def decide(costs: pd.DataFrame, rates: Sequence[FailureRate], choices: Choices) -> dict[str, pd.DataFrame]:  # fmt: skip
    """By name. `costs` is the table `decision_costs`; `rates` has the one that is chosen."""
    (chosen,) = (rate for rate in rates if rate.name == choices.rate)
    return {
        "failure_rates": failure_rates(rates),
        "decision_costs": costs,
        "advice": advice(costs, rates, choices),
        "scale": scale(costs, chosen, choices),
        "goodput_curves": goodput_curves(costs, chosen, choices),
    }

"""What the page starts from, as plain values for JSON: cases, failure rates, the draws of both, and how numbers are read and said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import pandas as pd

from ckptbench.analysis.tables.schema import Row
from ckptbench.answer import quantities
from ckptbench.decide import OTHERS, sampling
from ckptbench.decide.choices import Choices
from ckptbench.decide.model import LEAST_USEFUL, LONGEST, MOST_STEPS
from ckptbench.decide.rates import FailureRate
from ckptbench.decide.units import SECONDS_PER_HOUR
from ckptbench.errors import ConfigError
from ckptbench.page.cases import EXAMPLE, Draws, Pairs, measured_cases


def payload(
    costs: pd.DataFrame | None,
    rates: Sequence[FailureRate],
    choices: Choices,
    case: Pairs | None = None,
) -> Row:
    """The page starts with `case`, else with the first setup of the table `decision_costs`, else with an example.

    Raises ConfigError where the chosen rate is none of `rates`.
    """
    names = [rate.name for rate in rates]
    if choices.rate not in names:
        raise ConfigError(f"decision.rate is {choices.rate}: use one of {', '.join(sorted(names))}")
    draws = Draws()
    own = [] if case is None else [_written("your case", case)]
    measured = [] if costs is None else measured_cases(costs, choices, draws)
    return {
        "cases": [*own, *measured, _written("an example", EXAMPLE)],
        "rates": [_rate(rate, draws) for rate in rates],
        "choices": asdict(choices),
        "draws": list(draws.texts),
        "number_of_draws": sampling.DRAWS,
        "ends": [sampling.LOWEST, sampling.HIGHEST],
        "longest": LONGEST,
        "most_steps": MOST_STEPS,
        "other_rates": OTHERS,
        "least_useful": LEAST_USEFUL,
        "words": _words(),
    }


def _written(title: str, pairs: Pairs) -> Row:
    """A case of which nothing was measured."""
    return {"title": title, "how": "", "pairs": pairs, "strategies": []}


def _rate(rate: FailureRate, draws: Draws) -> Row:
    hours = 1 / (sampling.failures_per_s(rate, 1) * SECONDS_PER_HOUR)
    return {"name": rate.name, "title": rate.title, "source": rate.source, **draws.known(hours)}


def _words() -> Row:
    """The constants of `answer/quantities.py`: words.js has its functions."""
    return {
        "times": quantities.TIMES,
        "sizes": quantities.SIZES,
        "bandwidths": quantities.BANDWIDTHS,
        "part": quantities.PART.pattern,
        "steps": quantities.STEPS.pattern,
        "largest": quantities.LARGEST,
        "count": quantities.COUNT.pattern,
        "most": quantities.MOST,
        "units": [
            *({**asdict(unit), "longest": longest} for unit, longest in quantities.LONGEST),
            asdict(quantities.DAYS),
        ],
        "digits": quantities.DIGITS,
        "most_digits": quantities.MOST_DIGITS,
        "narrow": quantities.NARROW,
        "steps_wide": quantities.STEPS_WIDE,
        "not_zero": quantities.NOT_ZERO,
        "tells": quantities.TELLS,
    }

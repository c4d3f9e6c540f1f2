"""How many steps to leave between two saves, from what a save costs and what the user wants."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError
from dataclasses import dataclass
from typing import Union

from ckptbench_probe.words import seconds

Time = Union[str, float]
"""As `14h`, or seconds."""


def best_useful_s(cost_s: float, mtbf_s: float) -> float:
    """Useful time between two saves at which goodput is highest, if a save is finished before the next one.

    `ckptbench.decide.formulas` has goodput = I e^(-λg) / ((e^(λL) - 1) (1/λ + R)) (Daly 2006, equation 20). With L = I + c, where c is stall and slower
    steps, neither g nor R depends on I, and the derivative is 0 where 1 - λI = e^(-λ(I + c)). Newton's method from Young's sqrt(2c/λ), which is
    above the root: the function is concave, so each step falls towards it.
    """
    cost = max(cost_s, 0.0) / mtbf_s
    useful = min(1.0, math.sqrt(2 * cost))
    for _ in range(60 if useful else 0):
        slope = math.expm1(-useful - cost)
        down = (useful + slope) / slope
        useful += down
        if abs(down) <= 1e-12 * useful:
            break
    return useful * mtbf_s


@dataclass
class Target:
    """A mean time between failures (of one GPU: until `of` says how many there are), and bounds of the time between two saves."""

    mtbf_s: float
    gpu_mtbf_s: float
    least_s: float
    most_s: float

    @classmethod
    def read(
        cls, mtbf: Time | None, gpu_mtbf: Time | None, least: Time | None, most: Time | None
    ) -> Target:  # fmt: skip
        """Raises ValueError, whose message is one line."""
        if mtbf is not None and gpu_mtbf is not None:
            raise wrong("mtbf and gpu_mtbf are both given: give one")
        if mtbf is None and gpu_mtbf is None and most is None:
            raise wrong('mtbf is missing: say how often the job fails, as mtbf="14h", or most="30min"')  # fmt: skip
        read = cls(
            mtbf_s=_seconds("mtbf", mtbf, math.inf),
            gpu_mtbf_s=_seconds("gpu_mtbf", gpu_mtbf, math.inf),
            least_s=_seconds("least", least, 0.0),
            most_s=_seconds("most", most, math.inf),
        )
        if read.most_s < read.least_s:
            raise wrong(f"most is {most!r}, below least, {least!r}: exchange them")
        return read

    def of(self, ranks: int) -> None:
        if self.gpu_mtbf_s < math.inf:
            self.mtbf_s = self.gpu_mtbf_s / ranks

    def steps(self, cost_s: float, took_s: float, step_s: float) -> int:
        """No save is due before the last one has finished, `took_s` after its start, whatever `most` says."""
        best = best_useful_s(cost_s, self.mtbf_s) / step_s if self.mtbf_s < math.inf else math.inf
        least = math.ceil(self.least_s / step_s)
        most = math.inf
        if self.most_s < math.inf:
            most = max(math.floor((self.most_s - cost_s) / step_s), 1)
        finished = math.ceil((took_s - cost_s) / step_s)
        return max(round(min(max(best, least), most)), finished, 1)


def wrong(what: str) -> ValueError:
    return ValueError(f"ckptbench_probe.Interval: {what}")


def _seconds(name: str, value: Time | None, unknown: float) -> float:
    if value is None:
        return unknown
    try:
        found = seconds(value) if isinstance(value, str) else float(value)
    except (ArgumentTypeError, TypeError, ValueError):
        found = math.nan
    if not 0 < found < math.inf:
        raise wrong(f"{name} is {value!r}: write a time as 90s, 8min, 14h or 2d")
    return found

"""What the elastic recoveries share: the survivors of a loss go on in their processes."""

from __future__ import annotations

import dataclasses
import logging
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from itertools import dropwhile
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from ckptbench.failures.recovery.contract import (
    Loss,
    RankRecovery,
    Recovery,
    Verdict,
    end_at_once,
    possible_causes,
)
from ckptbench.frameworks.contract import Framework
from ckptbench.run.control.ranks import RankContext
from ckptbench.run.events import Event, Regroup, Start, Strike
from ckptbench.run.layout import trace_path
from ckptbench.run.plan import Plan
from ckptbench.run.trace import whole_events

log = logging.getLogger(__name__)


class Elastic(Recovery):
    """Leaves a loss to the survivors. Where they have not met yet, or there are none, all ranks start again from a version."""

    def __init__(self) -> None:
        self._explained: set[tuple[int, int]] = set()
        """The failures, by their numbers, and the ranks whose loss each has explained."""
        self.replaced: Counter[int] = Counter()
        """How many lost ranks were replaced while the others waited, by attempt."""

    def after(self, loss: Loss, plan: Plan) -> Verdict:
        if not self.was_planned(loss, plan):
            return Verdict.GIVE_UP
        return Verdict.GO_ON if loss.left and _have_met(plan) else Verdict.RELAUNCH

    def was_planned(self, loss: Loss, plan: Plan) -> bool:
        """Whether a failure of the trace explains the loss of every rank. Each explains the loss of a rank once."""
        strikes = possible_causes(loss, plan)
        for rank in loss.ranks:
            by = [strike.failure for strike in strikes if self._explains(strike, rank, plan)]
            if not by:
                return False
            self._explained.add((by[-1], rank))
            log.info("failure %d occurred in rank %d, as planned", by[-1], rank)
        return bool(loss.ranks)

    def is_whole(self, plan: Plan) -> bool:
        """Whether every rank says that it trains with all others again since the last loss, where lost ranks are replaced."""
        return all(
            sum(isinstance(event, Regroup) for event in events_since_met(plan, rank))
            == self.replaced[plan.attempt]
            for rank in range(plan.cell.ranks)
        )

    def _explains(self, strike: Strike, rank: int, plan: Plan) -> bool:
        if (strike.failure, rank) in self._explained:
            return False
        return plan.failures[strike.failure].rank in (rank, None)  # without one: a node


class ElasticRank(RankRecovery):
    """The half that every rank calls. Its library may wait for other ranks at Python's end."""

    def abort(self) -> NoReturn:
        self.leave(1)

    def leave(self, status: int) -> NoReturn:
        end_at_once(status)


class AveragingRank(ElasticRank):
    """Averages the gradients itself. The framework takes its rank for the only one."""

    @property
    def framework_world(self) -> RankContext:
        return dataclasses.replace(self.world, world_size=1)

    def adopt(self, framework: Framework) -> None:
        super().adopt(framework)
        framework.average = self._average

    def _average(self, gradients: Sequence[NDArray[np.float32]]) -> None:
        """With the option `learning_rate: scaled` a gradient counts as much as the samples that it is of.

        A smaller learning rate does that to it too (Goyal et al. 2017, the linear scaling rule). But the momentum of earlier
        steps keeps its weight, and so does the weight decay.
        """
        self.average(gradients)
        if self.options["learning_rate"] == "scaled" and self.part_read != 1.0:
            for gradient in gradients:
                np.multiply(gradient, np.float32(self.part_read), out=gradient)

    @abstractmethod
    def average(self, gradients: Sequence[NDArray[np.float32]]) -> None:
        """Average each array over the ranks, in place, as `Framework.average` asks."""


def _have_met(plan: Plan) -> bool:
    """Whether all ranks of this attempt have met. Before, those that are left would wait for the lost one for ever."""
    return all(events_since_met(plan, rank) for rank in range(plan.cell.ranks))


def events_since_met(plan: Plan, rank: int) -> list[Event]:
    """The events of a rank in this attempt, from when it first met the others. Empty: it has not yet."""
    events = whole_events(trace_path(plan.run_folder, rank))
    return list(
        dropwhile(
            lambda event: not (isinstance(event, Start) and event.attempt == plan.attempt), events
        )
    )

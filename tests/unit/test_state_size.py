"""The bytes that a checkpoint must hold: each tensor once."""

from __future__ import annotations

import numpy as np
from numpy_framework import ALONE, NumpyFramework, linear

from ckptbench.frameworks.contract import Arrays, Sgd, TrainSpec
from ckptbench.matrix.networks.layers import BatchNorm, Network
from ckptbench.matrix.networks.tensor_groups import group_of
from ckptbench.training.state import state_of

CHANNELS = 5


class WithStatistics(NumpyFramework):
    """Holds running statistics as every framework does: formats store them, and each rank has its own. And second moments."""

    def state_dict(self) -> Arrays:
        second = {f"optimizer/{name}.second_moment": each for name, each in self.momenta.items()}
        return {
            **super().state_dict(),
            **self._statistics("model"),
            **second,
            "optimizer/t": np.ones(()),
        }

    def local_state(self) -> Arrays:
        return {**self._statistics("buffer"), "random/numpy": np.zeros(7, np.uint8)}

    @staticmethod
    def _statistics(where: str) -> Arrays:
        return {
            f"{where}/norm.{kind}": np.zeros(CHANNELS, np.float32) for kind in ("mean", "variance")
        }


def test_every_tensor_counts_once() -> None:
    """Running statistics are no part of the model: each rank's own are part of the rest."""
    network = Network((*linear((2, 2, 1), 3).layers, BatchNorm("norm", CHANNELS)))
    framework = WithStatistics.join(ALONE, seed=1, deterministic=True)
    weights = dict(network.initial_weights(1))
    framework.build(TrainSpec(network, weights, Sgd(learning_rate=1, momentum=0, weight_decay=0)))
    state = state_of(network, framework)
    assert state.parameters == network.parameter_count == 3 * 4 + 3 + 2 * CHANNELS
    assert state.model == 4 * network.parameter_count
    assert state.second_moments == 4 * network.parameter_count
    assert state.optimizer == 2 * state.second_moments + 8
    assert state.rest == 4 * 2 * CHANNELS + 7


def test_both_moments_are_of_one_group_and_counters_of_another() -> None:
    names = [f"optimizer/norm.scale{suffix}" for suffix in ("", ".second_moment", ".step")]
    assert [group_of(name) for name in names] == ["momentum", "momentum", "counters"]

"""Digests and random states: equal bits, equal names."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from numpy_framework import ALONE, NumpyFramework, linear

from ckptbench.frameworks.contract import Sgd, TrainSpec
from ckptbench.frameworks.random_state import load_random_state, random_state, seed_all
from ckptbench.run.events import Digest
from ckptbench.run.position import Position
from ckptbench.run.recorder import Recorder
from ckptbench.run.trace import last_events
from ckptbench.training.digest import StateDigester, digest, digests


def test_equal_tensors_have_equal_digests_however_they_lie_in_memory() -> None:
    tensor = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert digest(tensor) == digest(np.asfortranarray(tensor)) == digest(tensor.copy())


@pytest.mark.parametrize(
    "other",
    [
        np.arange(12, dtype=np.float32).reshape(4, 3),
        np.arange(12, dtype=np.float64).reshape(3, 4),
        np.nextafter(np.arange(12, dtype=np.float32), np.float32(99)).reshape(3, 4),
        np.zeros((0, 4), np.float32),
    ],
)
def test_another_shape_type_or_bit_is_another_digest(other: np.ndarray) -> None:
    assert digest(other) != digest(np.arange(12, dtype=np.float32).reshape(3, 4))


def test_a_negative_zero_is_not_a_zero() -> None:
    assert digest(np.array(0.0)) != digest(np.array(-0.0))


def test_digests_are_in_the_order_of_their_names() -> None:
    assert list(digests({"b": np.zeros(1), "a": np.zeros(1)})) == ["a", "b"]


def test_a_random_state_is_put_back_whole() -> None:
    seed_all(3)
    random.gauss(0, 1), np.random.standard_normal()  # each keeps a second normal draw in its cache
    state = random_state()
    drawn = [random.gauss(0, 1), random.random(), *np.random.standard_normal(3)]
    seed_all(4)
    load_random_state(state)
    assert [random.gauss(0, 1), random.random(), *np.random.standard_normal(3)] == drawn


@pytest.mark.parametrize("proof", [True, False])
def test_only_a_proof_records_the_ranks_own_state_and_keeps_arrays(
    tmp_path: Path, proof: bool
) -> None:
    framework = NumpyFramework.join(ALONE, seed=1, deterministic=True)
    network = linear((4, 4, 1), 3)
    sgd = Sgd(learning_rate=0.1, momentum=0.9, weight_decay=0)
    framework.build(TrainSpec(network, dict(network.initial_weights(1)), sgd))
    trace, kept = tmp_path / "trace-0.jsonl", tmp_path / "final.npz"
    recorder = Recorder(trace)
    position = Position(step=4, epoch=1, step_in_epoch=0)
    StateDigester(framework, recorder, proof=proof).see_end(position, kept)
    recorder.close()
    (event,) = last_events(trace, Digest)
    assert isinstance(event, Digest)
    assert event.tensors == digests(framework.state_dict())
    assert event.rank_state == (digests(framework.local_state()) if proof else {})
    assert kept.exists() == proof

"""Digests and random states: equal bits, equal names."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ckptbench.frameworks.random_state import load_random_state, random_state, seed_all
from ckptbench.training.digest import digest, digests


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

"""Tensors by value: distances worked out by hand, and what is no number."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from ckptbench.analysis.collect import values
from ckptbench.analysis.collect.values import MOST, Comparison, compare
from ckptbench.common.errors import CkptbenchError
from ckptbench.matrix.networks.tensor_groups import group_of

NEXT = np.nextafter(np.float32(1.0), np.float32(2.0))
SMALLEST = np.float32(1e-45)


def floats(*values: Any) -> np.ndarray[Any, Any]:
    return np.array(values, np.float32)


def test_equal_bits_are_at_no_distance() -> None:
    same = floats(1.0, math.nan, math.inf, -0.0)
    assert compare(same, same.copy()) == Comparison(4, 0, 0, 0.0)


@pytest.mark.parametrize(
    ("one", "other", "ulp"),
    [
        (floats(1.0), floats(NEXT), 1),
        (floats(1.0), floats(2.0), 2**23),
        (floats(-1.0), floats(-NEXT), 1),
        (floats(SMALLEST), floats(-SMALLEST), 2),
        (floats(0.0), floats(-0.0), 0),
        (floats(np.finfo(np.float32).max), floats(math.inf), 1),
        (np.array(1.0), np.array(np.nextafter(1.0, 0.0)), 1),
        (np.array([-1.0]), np.array([1.0]), 2 * 0x3FF0000000000000),
        (np.array([-math.inf]), np.array([math.inf]), MOST),
        (np.array(3), np.array(-4), 7),
        (np.array([250], np.uint8), np.array([2], np.uint8), 248),
        (np.array([0], np.uint64), np.array([2**64 - 1], np.uint64), MOST),
        (np.array([True]), np.array([False]), 1),
    ],
)
def test_a_distance_counts_the_representable_values_between(
    one: np.ndarray[Any, Any], other: np.ndarray[Any, Any], ulp: int
) -> None:
    assert compare(one, other).max_ulp == compare(other, one).max_ulp == ulp
    assert compare(one, other).different == 1


def test_the_largest_of_several_distances_is_given() -> None:
    found = compare(floats(1.0, 1.0, 1.0), floats(1.0, NEXT, 2.0))
    assert (found.elements, found.different, found.max_ulp) == (3, 2, 2**23)


def test_a_tensor_of_many_blocks_is_compared_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = floats(1, 1, 2, 0, 4), floats(1, NEXT, 1, 0, 4)
    whole = compare(one, other)
    assert (whole.different, whole.max_ulp) == (2, 2**23)
    monkeypatch.setattr(values, "BLOCK", 2)
    found = compare(one, other)
    assert found.relative_l2 == pytest.approx(whole.relative_l2)
    assert dataclasses.replace(found, relative_l2=whole.relative_l2) == whole
    assert compare(one, floats(1, 1, 2, 0, math.nan)).max_ulp is None


def test_relative_l2_is_against_the_reference() -> None:
    # ||(3, 4) - (0, 4)|| = 3, ||(0, 4)|| = 4, ||(3, 4)|| = 5.
    assert compare(floats(3, 4), floats(0, 4)).relative_l2 == pytest.approx(3 / 4)
    assert compare(floats(0, 4), floats(3, 4)).relative_l2 == pytest.approx(3 / 5)


@pytest.mark.parametrize(
    ("tensor", "reference"),
    [
        (floats(1.0), floats(0.0)),
        (floats(math.inf), floats(1.0)),
        (floats(1.0), floats(math.inf)),
        (floats(math.nan), floats(1.0)),
        (floats(1.0), floats(math.nan)),
    ],
)
def test_relative_l2_is_infinite_where_it_is_no_number(
    tensor: np.ndarray[Any, Any], reference: np.ndarray[Any, Any]
) -> None:
    assert compare(tensor, reference).relative_l2 == math.inf


def test_a_nan_is_at_no_known_distance_from_a_number_and_at_none_from_a_nan() -> None:
    other_nan = np.array([0x7FC00001], np.uint32).view(np.float32)
    assert compare(floats(math.nan, 1.0), floats(2.0, 1.0)).max_ulp is None
    assert compare(floats(math.nan), other_nan) == Comparison(1, 1, 0, 0.0)
    # ||(2) - (1)|| / ||(1)||: where both are no number, neither norm has a share of it.
    assert compare(floats(math.nan, 2.0), np.append(other_nan, floats(1.0))).relative_l2 == 1.0


def test_tensors_of_another_type_or_shape_differ_in_every_element() -> None:
    for other in (np.ones(4), floats(*[1] * 6), floats(*[1] * 4).reshape(2, 2)):
        found = compare(floats(1, 1, 1, 1), other)
        assert found == Comparison(max(4, other.size), max(4, other.size), None, math.inf)


@pytest.mark.parametrize(
    ("tensor", "group"),
    [
        ("model/block1.conv.kernel", "weights"),
        ("model/norm.shift", "weights"),
        ("model/norm.variance", "statistics"),
        ("buffer/bn.running_mean", "statistics"),
        ("buffer/bn.num_batches_tracked", "counters"),
        ("optimizer/block1.conv.kernel", "momentum"),
        ("optimizer/learning_rate", "counters"),
        ("random/torch", "random"),
        ("seed/0", "dropout"),
        ("position/data", "position"),
    ],
)
def test_a_tensor_is_of_the_group_that_its_name_says(tensor: str, group: str) -> None:
    assert group_of(tensor) == group


@pytest.mark.parametrize("tensor", ["model/norm.median", "weights", "rng/state"])
def test_a_name_of_no_group_is_refused(tensor: str) -> None:
    with pytest.raises(CkptbenchError, match=f'the name "{tensor}" does not say to which part'):
        group_of(tensor)

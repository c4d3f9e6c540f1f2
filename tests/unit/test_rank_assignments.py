"""The ranks of a node."""

from __future__ import annotations

import dataclasses

from numpy_framework import ALONE


def test_a_place_knows_the_ranks_of_its_node() -> None:
    two = dataclasses.replace(ALONE, world_size=3, rank=2, node="b", nodes=("a", "b", "b"))
    assert two.is_spread
    assert two.ranks_here == (1, 2)
    one = dataclasses.replace(ALONE, world_size=3)
    assert not one.is_spread
    assert one.ranks_here == (0, 1, 2)

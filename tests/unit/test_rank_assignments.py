"""The ranks of a node, and the ranks that hold copies of what others write."""

from __future__ import annotations

import dataclasses

import pytest
from numpy_framework import ALONE

from ckptbench.world.ranks import partners_of


@pytest.mark.parametrize(
    ("nodes", "partners"),
    [
        ("ab", [1, 0]),
        ("abc", [1, 2, 0]),
        ("aabb", [2, 3, 0, 1]),
        ("aab", [2, 2, 0]),
        ("abb", [1, 0, 0]),
        ("aabbc", [2, 3, 4, 4, 0]),
    ],
)
def test_the_partner_is_on_the_next_node(nodes: str, partners: list[int]) -> None:
    assert [partners_of(nodes, rank, 1) for rank in range(len(nodes))] == [(p,) for p in partners]


def test_ranks_of_one_node_have_no_partner() -> None:
    assert partners_of("aaa", 1, 1) == ()


def test_copies_go_to_as_many_other_nodes_as_there_are() -> None:
    assert partners_of("abc", 1, 0) == ()
    assert partners_of("abc", 1, 2) == (2, 0)
    assert partners_of("abc", 1, 5) == (2, 0)


def test_a_place_knows_the_ranks_of_its_node() -> None:
    two = dataclasses.replace(ALONE, world_size=3, rank=2, node="b", nodes=("a", "b", "b"))
    assert two.is_spread
    assert two.ranks_here == (1, 2)
    one = dataclasses.replace(ALONE, world_size=3)
    assert not one.is_spread
    assert one.ranks_here == (0, 1, 2)

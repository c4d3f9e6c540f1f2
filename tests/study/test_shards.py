"""A framework whose ranks hold shards trains as one whose ranks hold everything, and any number of ranks loads its versions."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from ranks import Found, part_of, run_scenario
from shards import VOCABULARY, strategies

FRAMEWORK = "pytorch_fsdp"
SCRIPT = Path(__file__).with_name("shards.py")
CHAIN = (2, 4, 1)
"""How many ranks there are in one launch after the other. Each loads what the one before it has written."""
pytestmark = pytest.mark.frameworks(FRAMEWORK)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Found]]:
    """Of each launch, by its number of ranks."""
    each: dict[int, list[Found]] = {}
    written = None
    for ranks in CHAIN:
        folder = tmp_path_factory.mktemp(f"{ranks}-ranks")
        each[ranks] = run_scenario(
            FRAMEWORK, "shards", folder, ranks=ranks, script=SCRIPT, written=written
        )
        written = str(folder)
    return each


def test_gradients_are_those_of_replicas(found: dict[int, list[Found]]) -> None:
    """Bit for bit with two ranks; those of four are summed in another order."""
    for ranks, of_ranks in found.items():
        for rank in of_ranks:
            shards, replicas = (part_of(rank, f"{kind}/optimizer") for kind in ("shards", "replicas"))  # fmt: skip
            assert shards.keys() == replicas.keys()
            assert any(array.any() for array in shards.values())
            for name, array in shards.items():
                if ranks <= 2:
                    assert array.tobytes() == replicas[name].tobytes(), name
                np.testing.assert_allclose(array, replicas[name], rtol=1e-4, atol=1e-7, err_msg=name)  # fmt: skip


def test_ranks_hold_no_more_than_their_shards(found: dict[int, list[Found]]) -> None:
    """A shard has whole rows: one more than others at most, of a tensor with 8 columns and as many slots."""
    alone = found[1][0]["bytes"].sum()
    for ranks, of_ranks in found.items():
        largest = max(rank["bytes"].sum() for rank in of_ranks)
        assert largest < 1.1 * alone / ranks


@pytest.mark.parametrize(("then", "now"), list(itertools.pairwise(CHAIN)))
@pytest.mark.parametrize("strategy", strategies(FRAMEWORK))
def test_any_number_of_ranks_loads_what_others_have_written_bit_for_bit(
    found: dict[int, list[Found]], strategy: str, then: int, now: int
) -> None:
    saved = part_of(found[then][0], "saved")
    assert any(VOCABULARY in array.shape for array in saved.values())
    for rank in found[now]:
        loaded = part_of(rank, strategy)
        assert loaded.keys() == saved.keys()
        assert [n for n, array in saved.items() if array.tobytes() != loaded[n].tobytes()] == []

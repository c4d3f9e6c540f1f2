"""A framework whose ranks hold shards trains as one whose ranks hold everything, and any number of ranks loads its versions."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from ranks import Found, part_of, run_scenario
from shards import VOCABULARY, strategies

from ckptbench.matrix.registry import FRAMEWORKS

FRAMEWORK = "pytorch_fsdp"
"""Its strategies are those of the other one too."""
HYBRID = "pytorch_hsdp"
SCRIPT = Path(__file__).with_name("shards.py")
CHAIN = ((FRAMEWORK, 2), (FRAMEWORK, 4), (HYBRID, 4), (FRAMEWORK, 1))
"""Framework and number of ranks of one launch after the other. Each loads what the one before it has written."""
Launches = dict[tuple[str, int], list[Found]]
pytestmark = pytest.mark.frameworks(FRAMEWORK)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Launches:
    each: Launches = {}
    written = None
    for framework, ranks in CHAIN:
        folder = tmp_path_factory.mktemp(f"{framework}-{ranks}")
        each[framework, ranks] = run_scenario(
            framework, "shards", folder, ranks=ranks, script=SCRIPT, written=written
        )
        written = str(folder)
    return each


def test_gradients_are_those_of_replicas(found: Launches) -> None:
    """Bit for bit with two ranks; those of four are summed in another order."""
    for (_, ranks), of_ranks in found.items():
        for rank in of_ranks:
            shards, replicas = (part_of(rank, f"{kind}/optimizer") for kind in ("shards", "replicas"))  # fmt: skip
            assert shards.keys() == replicas.keys()
            assert any(array.any() for array in shards.values())
            for name, array in shards.items():
                if ranks <= 2:
                    assert array.tobytes() == replicas[name].tobytes(), name
                np.testing.assert_allclose(array, replicas[name], rtol=1e-4, atol=1e-7, err_msg=name)  # fmt: skip


def test_ranks_hold_no_more_than_their_shards(found: Launches) -> None:
    """A shard has whole rows: one more than others at most, of a tensor with 8 columns and as many slots."""
    alone = found[FRAMEWORK, 1][0]["bytes"].sum()
    for (framework, ranks), of_ranks in found.items():
        largest = max(rank["bytes"].sum() for rank in of_ranks)
        assert largest < 1.1 * alone / FRAMEWORKS[framework].parts(ranks)


def test_a_shard_that_two_ranks_hold_is_written_once(found: Launches) -> None:
    """By `sharded`, `async` and `deepfreeze` half by each of them, in DCP by one of them."""
    hybrid, sharded = (found[framework, 4][0] for framework in (HYBRID, FRAMEWORK))
    for strategy in strategies(FRAMEWORK):
        assert hybrid[f"written/{strategy}"].sum() < 1.1 * sharded[f"written/{strategy}"].sum()
    sizes = hybrid["written/sharded"]
    assert len(sizes) == 4
    assert sizes.max() < 1.2 * sizes.min()


@pytest.mark.parametrize(("then", "now"), list(itertools.pairwise(CHAIN)))
@pytest.mark.parametrize("strategy", strategies(FRAMEWORK))
def test_any_number_of_ranks_loads_what_others_have_written_bit_for_bit(
    found: Launches, strategy: str, then: tuple[str, int], now: tuple[str, int]
) -> None:
    saved = part_of(found[then][0], "saved")
    assert any(VOCABULARY in array.shape for array in saved.values())
    for rank in found[now]:
        loaded = part_of(rank, strategy)
        assert loaded.keys() == saved.keys()
        assert [n for n, array in saved.items() if array.tobytes() != loaded[n].tobytes()] == []

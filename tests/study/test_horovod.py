"""Horovod: its traps in a restart, each shown to bite a program that is written as the manual says, and not ours.

And what no other framework of the study has: ranks that go on when one is gone, and sums that depend on what else
is being sent.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranks import Found, run_scenario

from ckptbench.common.errors import LaunchError
from ckptbench.matrix.registry import FRAMEWORKS

TRAPS = Path(__file__).with_name("horovod_traps.py")
BOTH = pytest.mark.parametrize(
    "framework", [name for name, entry in FRAMEWORKS.items() if ".horovod." in entry.location]
)
pytestmark = pytest.mark.frameworks("horovod_pytorch")


def run(scenario: str, folder: Path, *, ranks: int = 2, **options: Any) -> list[Found]:
    return run_scenario("horovod_pytorch", scenario, folder, ranks=ranks, script=TRAPS, **options)


def lost(found: Found) -> set[str]:
    """What is not after the restart what it was when the checkpoint was written."""
    saved = {name.partition("/")[2] for name in found if name.startswith("saved/")}
    return {name for name in saved if differ(found[f"saved/{name}"], found[f"restarted/{name}"])}


def differ(first: np.ndarray, second: np.ndarray) -> bool:
    return first.tobytes() != second.tobytes()


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> list[Found]:
    return run("saved_and_restarted", tmp_path_factory.mktemp("ours"))


def test_a_restart_of_ours_gives_every_rank_back_what_it_had(ours: list[Found]) -> None:
    for found in ours:
        assert any(found[name].any() for name in found if name.startswith("saved/optimizer/"))
        assert lost(found) == set()


def test_momentum_that_is_loaded_before_the_optimizer_is_wrapped_is_lost(tmp_path: Path) -> None:
    for found in run("load_before_wrapping", tmp_path):
        momenta = {name.partition("/")[2] for name in found if name.startswith("saved/momentum/")}
        assert momenta
        assert lost(found) == momenta
        assert not any(found[f"restarted/{name}"].any() for name in momenta)


def test_weights_that_are_sent_before_the_optimizers_state_decay_on_all_other_ranks(
    tmp_path: Path, ours: list[Found]
) -> None:
    """To have slots to receive into, they make an update with gradients of zero, to which weight decay adds."""
    first, second = run("broadcast", tmp_path / "parameters", parameters_first=True)
    apart = {name for name in first if differ(first[name], second[name])}
    assert apart >= {"restarted/0.weight"}
    assert not any("momentum" in name for name in apart)

    first, second = run("broadcast", tmp_path / "optimizer", parameters_first=False)
    assert not any(differ(first[name], second[name]) for name in first)

    first, second = ours
    shared = [
        name for name in first if name.startswith(("restarted/model/", "restarted/optimizer/"))
    ]
    parted = {name.rpartition(".")[2] for name in shared if differ(first[name], second[name])}
    assert parted <= {"mean", "variance"}


def test_the_statistics_of_other_ranks_are_in_no_checkpoint_of_rank_0(
    tmp_path: Path, ours: list[Found]
) -> None:
    first, second = run("load_one_file", tmp_path)
    statistics = {name for name in lost(second) if "running_" in name}
    assert statistics
    assert lost(second) == statistics
    assert lost(first) == set()
    for name in statistics:
        assert np.array_equal(second[f"restarted/{name}"], first[f"saved/{name}"])

    first, second = ours
    kept = [name for name in second if name.startswith("restarted/buffer/") and "running" in name]
    assert any(differ(first[name], second[name]) for name in kept)


def test_what_shares_a_buffer_with_a_tensor_changes_its_sum_over_three_ranks(
    tmp_path: Path,
) -> None:
    """So deterministic mode lets nothing share one; over two ranks, a sum has only one order."""
    for ranks, changes in ((2, False), (3, True)):
        for found in run("sums", tmp_path / str(ranks), ranks=ranks):
            changed = any(differ(found[f"alone/{n}"], found[f"fused/{n}"]) for n in (0, 1))
            assert changed == changes, ranks


@BOTH
@pytest.mark.parametrize("how", ["killed", "failed"])
def test_ranks_do_not_wait_for_one_that_is_gone(tmp_path: Path, framework: str, how: str) -> None:
    with pytest.raises(LaunchError, match="rank-1"):
        run_scenario(framework, "fail", tmp_path, ranks=2, script=TRAPS, how=how)
    assert "Horovod" in (tmp_path / "error-0.txt").read_text()

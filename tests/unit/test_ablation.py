"""Ablations: what a restart leaves out on purpose, whatever strategy has loaded the rest."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from numpy_framework import ALONE, NumpyFramework, linear

from ckptbench.common.errors import CheckpointError
from ckptbench.frameworks.contract import Arrays, Sgd, TensorHandle, TrainSpec
from ckptbench.training.ablation import Ablation
from ckptbench.training.digest import digests

RANKS = (0, 1)


class Statistician(NumpyFramework):
    """Has running statistics and dropout seeds too: `statistic`, which may differ."""

    statistic = 0.0
    dropout_seed = 0.0
    forgotten: str | None = None

    def build(self, spec: TrainSpec) -> None:
        super().build(spec)
        self.momenta = {name: np.full_like(array, 3) for name, array in self.momenta.items()}

    def local_state(self) -> Arrays:
        return {
            **super().local_state(),
            "buffer/norm.mean": np.asarray(self.statistic),
            "seed/0": np.asarray(self.dropout_seed),
        }

    def load_local_state(self, state: Arrays) -> None:
        super().load_local_state(state)
        self.statistic = float(state["buffer/norm.mean"])
        self.dropout_seed = float(state["seed/0"])
        self.loaded = state

    def forget(self, part: str) -> None:
        self.forgotten = part
        if part == "momentum":
            super().forget(part)


def test_all_slots_of_a_parameter_are_forgotten_and_nothing_else() -> None:
    """Both moments, and the counter of its updates."""
    slots = [f"optimizer/tokens.kernel{suffix}" for suffix in ("", ".second_moment", ".step")]
    kept = ["model/tokens.kernel", "optimizer/steps", "optimizer/learning_rate"]
    values = {name: np.ones(3, np.float32) for name in (*slots, *kept)}

    class WithMoments(NumpyFramework):
        def handles(self) -> list[TensorHandle]:
            return [handle_of(name) for name in values]

    def handle_of(name: str) -> TensorHandle:
        array = values[name]
        return TensorHandle(
            name=name, shape=array.shape, dtype=array.dtype, read=lambda: array,
            write=lambda new: np.copyto(array, new),
        )  # fmt: skip

    WithMoments().forget("momentum")
    assert [name for name, array in values.items() if not array.any()] == slots


def built(*, seed: int, statistic: float) -> Statistician:
    """A framework at its first step; `seed` is that of its weights and of the global generators."""
    framework = Statistician.join(ALONE, seed=seed, deterministic=True)
    network = linear((4, 4, 1), 3)
    sgd = Sgd(learning_rate=0.1, momentum=0.9, weight_decay=0)
    framework.build(TrainSpec(network, dict(network.initial_weights(seed)), sgd))
    framework.statistic = framework.dropout_seed = statistic
    return framework


def state_that_was_saved(rank: int) -> Arrays:
    return built(seed=10 + rank, statistic=10.0 + rank).local_state()


def restarted(folder: Path, rank: int, omit: str) -> tuple[Statistician, Arrays]:
    """A new process's framework of another seed that has loaded; and its state before it did."""
    framework = built(seed=20, statistic=20.0)
    before = framework.local_state()
    ablation = Ablation(omit, framework, rank=rank, exchange=folder)
    framework.load_local_state(state_that_was_saved(rank))  # as any strategy does
    ablation.apply()
    return framework, before


def differing(one: Arrays, other: Arrays) -> set[str]:
    """What the names of the arrays that differ begin with."""
    return {name.split("/")[0] for name, _ in digests(one).items() ^ digests(other).items()}


@pytest.mark.parametrize("omit", ["nothing", "position"])
@pytest.mark.parametrize("rank", RANKS)
def test_what_is_not_omitted_is_as_it_was_loaded(tmp_path: Path, rank: int, omit: str) -> None:
    framework, _ = restarted(tmp_path, rank, omit)
    assert differing(framework.local_state(), state_that_was_saved(rank)) == set()
    assert framework.forgotten is None
    assert all((momentum == 3).all() for momentum in framework.momenta.values())


@pytest.mark.parametrize(("omit", "prefix"), [("random", "random"), ("dropout", "seed")])
@pytest.mark.parametrize("rank", RANKS)
def test_what_is_omitted_of_a_rank_stays_as_the_new_process_had_it(
    tmp_path: Path, rank: int, omit: str, prefix: str
) -> None:
    framework, before = restarted(tmp_path, rank, omit)
    state = framework.local_state()
    assert differing(state, state_that_was_saved(rank)) == {prefix}
    assert prefix not in differing(state, before)


def test_without_their_statistics_other_ranks_get_those_of_rank_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meeting = threading.Barrier(2)
    monkeypatch.setattr(Statistician, "barrier", lambda _: meeting.wait(300))
    states: dict[int, Arrays] = {}

    def restart(rank: int) -> None:
        # The generators are the process's own: what is compared are the statistics.
        framework = built(seed=20, statistic=20.0)
        ablation = Ablation("statistics", framework, rank=rank, exchange=tmp_path)
        framework.statistic = framework.dropout_seed = 10.0 + rank
        ablation.apply()
        states[rank] = framework.loaded

    other = threading.Thread(target=restart, args=(1,))
    other.start()
    restart(0)
    other.join(30)
    assert states[0]["buffer/norm.mean"] == states[1]["buffer/norm.mean"] == 10.0
    assert states[1]["seed/0"] == 11.0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("omit", ["momentum", "first_update"])
def test_what_is_the_frameworks_is_forgotten_once_all_is_loaded(tmp_path: Path, omit: str) -> None:
    framework, _ = restarted(tmp_path, 1, omit)
    assert framework.forgotten == omit
    assert differing(framework.local_state(), state_that_was_saved(1)) == set()
    expected = 0 if omit == "momentum" else 3
    assert all((momentum == expected).all() for momentum in framework.momenta.values())


@pytest.mark.parametrize("omit", ["dropout", "statistics"])
def test_an_omission_of_what_is_not_there_is_refused(tmp_path: Path, omit: str) -> None:
    framework = NumpyFramework.join(ALONE, seed=1, deterministic=True)
    ablation = Ablation(omit, framework, rank=0, exchange=tmp_path)
    with pytest.raises(CheckpointError, match=f"omit is {omit}, and this rank's state has nothing"):
        ablation.apply()

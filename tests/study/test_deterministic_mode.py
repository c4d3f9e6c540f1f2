"""Deterministic mode of every framework: the same seed gives the same bits in every run, restarted ones too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ranks import Found, at_the_end, part_of, run_scenario
from selection import FULL, OWN, RANKS, TRIED

from ckptbench.matrix.registry import FRAMEWORKS

NEEDS_NONE = ("jax",)
"""Frameworks without a setting of their own."""
SUMMING = ("chainer", "pytorch")
"""One whose gradients MPI sums, and one whose gradients Gloo sums; `make test-full` has the others."""
EACH, EVERY = (pytest.mark.parametrize("framework", names) for names in (OWN, TRIED))


def different(first: Found, second: Found) -> list[str]:
    assert first.keys() == second.keys()
    return [name for name in first if first[name].tobytes() != second[name].tobytes()]


@pytest.mark.parametrize("ranks", RANKS if FULL else RANKS[:1])
@EACH
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(
    tmp_path: Path, framework: str, ranks: int
) -> None:
    """Of the weights after some steps, and of each rank's losses; the network has dropout.

    That two ranks repeat their bits is also shown by the study in test_determinism.py, in every digest.
    """
    runs = {
        name: run_scenario(
            framework, "train", tmp_path / name,
            ranks=ranks, model="small_cnn", size=8 * ranks, steps=4, seed=seed, deterministic=True,
        )
        for name, seed in (("run", 5), ("again", 5), ("other", 6))
    }  # fmt: skip
    for run, again, other in zip(*runs.values(), strict=True):
        assert different(run, again) == []
        assert "model/head.kernel" in different(run, other)


@pytest.mark.parametrize("framework", OWN if FULL else SUMMING)
def test_three_ranks_go_on_from_a_checkpoint_bit_for_bit(tmp_path: Path, framework: str) -> None:
    """The sum of two numbers is the same in either order; that of three is not. The nine steps that follow repeat."""
    save, format = tmp_path / "save", FRAMEWORKS[framework].formats[0]
    whole = run_scenario(framework, "save", save, ranks=3, last=12, deterministic=True)
    resumed = run_scenario(
        framework, "resume", tmp_path / "resume",
        ranks=3, formats=[format], saved=str(save), last=12, deterministic=True,
    )  # fmt: skip
    for before, after in zip(whole, resumed, strict=True):
        assert different(at_the_end(before), part_of(after, format)) == []


@EVERY
def test_its_settings_are_on_in_the_rank_and_off_without_it(tmp_path: Path, framework: str) -> None:
    (on,) = run_scenario(framework, "settings", tmp_path / "on", deterministic=True)
    (off,) = run_scenario(framework, "settings", tmp_path / "off", deterministic=False)
    assert {"CUBLAS_WORKSPACE_CONFIG", "NCCL_ALGO"} < on.keys()
    assert (len(on) >= 5) != (framework in NEEDS_NONE), "no setting of the framework itself"
    assert {name for name, flag in on.items() if not flag} == set()
    assert {name for name, flag in off.items() if flag} == set()


@pytest.mark.frameworks("pytorch")
def test_pooling_of_another_kind_is_the_same_pooling(tmp_path: Path) -> None:
    """PyTorch's deterministic mode has its own, by products with matrices of means."""
    (on,), (off,) = (
        run_scenario(
            "pytorch",
            "forward",
            tmp_path / str(mode),
            named="plain_cnn",
            others=[],
            deterministic=mode,
        )
        for mode in (True, False)
    )
    assert np.allclose(on["plain_cnn/logits"], off["plain_cnn/logits"], rtol=1e-5, atol=1e-6)

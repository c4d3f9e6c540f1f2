"""Every framework keeps the contract of `frameworks/base.py`, and all compute the same network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ranks import Found, run_scenario

from ckptbench.architectures import ARCHITECTURES
from ckptbench.cells import OMISSIONS
from ckptbench.frameworks import FRAMEWORKS

EVERY = pytest.mark.parametrize("framework", FRAMEWORKS)
PUBLISHED = {"resnet50": 23_528_522, "vgg16": 134_301_514}


def agree(first: np.ndarray, second: np.ndarray) -> float:
    """The largest difference, relative to the largest value."""
    return float(np.abs(first - second).max() / np.abs(first).max())


@pytest.mark.parametrize("model", ARCHITECTURES)
def test_all_frameworks_build_the_same_network(tmp_path: Path, model: str) -> None:
    found = {
        name: run_scenario(name, "forward", tmp_path / name, model=model)[0] for name in FRAMEWORKS
    }
    network = ARCHITECTURES[model]((32, 32, 3), 10)
    for framework, arrays in found.items():
        assert arrays["parameters"] == PUBLISHED.get(model, network.parameter_count), framework
        assert np.allclose(arrays["logits"][:1], arrays["one"], rtol=1e-4, atol=1e-5), framework
        assert agree(found["pytorch"]["logits"], arrays["logits"]) < 1e-4, framework


@EVERY
def test_the_state_has_the_names_of_the_description(tmp_path: Path, framework: str) -> None:
    (found,) = run_scenario(framework, "forward", tmp_path, model="small_cnn")
    names = set(found["names"])
    assert names == set(found["held"])
    network = ARCHITECTURES["small_cnn"]((32, 32, 3), 10)
    assert {f"model/{name}" for name in (*network.parameters(), *network.buffers())} <= names
    assert {f"optimizer/{name}" for name in network.parameters()} <= names


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_all_frameworks_take_the_same_steps(tmp_path: Path, weight_decay: float) -> None:
    """One rank, no batch norm or dropout: parameters and momenta stay together over six steps."""
    found = {
        name: run_scenario(
            name, "train", tmp_path / name,
            model="plain_cnn", size=8, steps=6, weight_decay=weight_decay,
        )[0]
        for name in FRAMEWORKS
    }  # fmt: skip
    network = ARCHITECTURES["plain_cnn"]((32, 32, 3), 10)
    for framework, arrays in found.items():
        for name in (*network.parameters(),):
            for group in ("model", "optimizer"):
                key = f"{group}/{name}"
                assert agree(found["pytorch"][key], arrays[key]) < 1e-4, (framework, key)
        assert np.allclose(found["pytorch"]["losses"], arrays["losses"], rtol=1e-4), framework


@EVERY
def test_two_ranks_with_half_the_batch_follow_one_with_the_whole(
    tmp_path: Path, framework: str
) -> None:
    options = {"model": "plain_cnn", "size": 16, "steps": 8}
    (alone,) = run_scenario(framework, "train", tmp_path / "1", ranks=1, **options)
    first, second = run_scenario(framework, "train", tmp_path / "2", ranks=2, **options)
    for name in ARCHITECTURES["plain_cnn"]((32, 32, 3), 10).parameters():
        assert agree(alone[f"model/{name}"], first[f"model/{name}"]) < 1e-4, name
        assert np.array_equal(first[f"model/{name}"], second[f"model/{name}"]), name
    assert np.allclose((first["losses"] + second["losses"]) / 2, alone["losses"], rtol=1e-4)
    assert not np.allclose(first["losses"], second["losses"]), "both ranks saw the same samples"


CHECKPOINTS = [(name, format) for name, entry in FRAMEWORKS.items() for format in entry.formats]


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(("framework", "format"), CHECKPOINTS)
def test_a_new_process_goes_on_from_a_checkpoint_bit_for_bit(
    tmp_path: Path, framework: str, format: str, ranks: int
) -> None:
    """With batch norm, dropout and momentum; parameters, slots, statistics, random states and logits."""
    options = {"model": "small_cnn", "format": format}
    saved = run_scenario(framework, "save", tmp_path / "save", ranks=ranks, **options)
    resumed = run_scenario(framework, "resume", tmp_path / "resume", ranks=ranks, **options)
    for before, after in zip(saved, resumed, strict=True):
        assert different(before, after) == []


@EVERY
def test_a_step_after_forgetting_the_momentum_is_one_from_zero_slots(
    tmp_path: Path, framework: str
) -> None:
    """And one rank has no other part to forget."""
    others = [part for part in OMISSIONS if part != "momentum"]
    (found,) = run_scenario(
        framework, "forget", tmp_path / "forget", part="momentum", others=others
    )
    (begun,) = run_scenario(framework, "begin_there", tmp_path / "begin")
    for name in ARCHITECTURES["plain_cnn"]((32, 32, 3), 10).parameters():
        assert found[f"before/optimizer/{name}"].any()
        for tensor in (f"model/{name}", f"optimizer/{name}"):
            assert found[f"first/{tensor}"].tobytes() == begun[tensor].tobytes(), tensor


def test_a_first_update_that_chainer_forgot_moves_nothing(tmp_path: Path) -> None:
    for found in run_scenario("chainer", "forget", tmp_path, ranks=2, part="first_update"):
        before, first, second = (
            {name: a for name, a in found.items() if name.startswith(f"{moment}/model/")}
            for moment in ("before", "first", "second")
        )
        assert [a.tobytes() for a in before.values()] == [a.tobytes() for a in first.values()]
        assert [a.tobytes() for a in first.values()] != [a.tobytes() for a in second.values()]


def different(first: Found, second: Found) -> list[str]:
    assert first.keys() == second.keys()
    return [name for name in first if first[name].tobytes() != second[name].tobytes()]

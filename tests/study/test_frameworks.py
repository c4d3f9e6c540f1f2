"""Every framework keeps the contract of `frameworks/contract.py`, and all compute the same network."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranks import Found, at_the_end, part_of, run_scenario
from scenario import (
    BY,
    CLASSES,
    WITHOUT_DROPOUT,
    batch,
    image_of,
    network_of,
    strategies_of,
    varied_weights,
)
from selection import FULL, OWN, RANKS, TRIED
from warm.environments import warm_environments

from ckptbench.matrix.networks.layers import BATCH_NORM_DECAY
from ckptbench.matrix.networks.models import ARCHITECTURES, READ_TOKENS
from ckptbench.matrix.networks.tensor_groups import group_of
from ckptbench.matrix.registry import FRAMEWORKS, OMISSIONS
from ckptbench.training.ablation import REPLACED

REFERENCE = next(iter(TRIED))
"""The framework that the others are held against."""
NAMED = "small_cnn"
"""The network whose tensors' names are looked at."""
BATCH_NORM_TOLERANCE = 1e-4
EVERY = pytest.mark.parametrize("framework", TRIED)
EACH = pytest.mark.parametrize("framework", OWN)
LARGE = ("gpt2", "gpt2_medium")
"""`gpt_baby` has all of their layers, and others' parameters are counted without a framework."""
OF_TOKENS = [name for name, entry in TRIED.items() if "tokens" in entry.offers]
OWN_OF_TOKENS = [name for name in OF_TOKENS if name in OWN]


def networks_of(framework: str) -> list[str]:
    """Those that it builds here: one where it builds them by the code of another framework."""
    if framework not in OWN:
        return [NAMED]
    left_out = () if FULL else LARGE
    own = (
        ARCHITECTURES
        if framework in OF_TOKENS
        else [m for m in ARCHITECTURES if m not in READ_TOKENS]
    )
    return [model for model in own if model not in left_out]


@dataclass(frozen=True)
class Saved:
    folder: Path
    found: list[Found]
    """Of each rank, at the end of its training."""


def agree(first: np.ndarray, second: np.ndarray) -> float:
    """The largest difference, relative to the largest value."""
    return float(np.abs(first - second).max() / np.abs(first).max())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Found]:
    """What scenario `forward` finds of every network, in one launch a framework."""
    warm_environments()

    @functools.cache
    def found(framework: str) -> Found:
        others = [model for model in networks_of(framework) if model != NAMED]
        folder = tmp_path_factory.mktemp(framework)
        return run_scenario(framework, "forward", folder, named=NAMED, others=others)[0]

    return found


@pytest.mark.frameworks(*TRIED)
@pytest.mark.parametrize("model", ARCHITECTURES)
def test_all_frameworks_build_the_same_network(built: Callable[[str], Found], model: str) -> None:
    network = network_of(model)
    with ThreadPoolExecutor(max_workers=2) as pool:  # a launch computes with one thread
        list(pool.map(built, TRIED))
    building = [framework for framework in TRIED if model in networks_of(framework)]
    assert building or model in LARGE
    reference = built(building[0])[f"{model}/logits"] if building else np.zeros(0)
    for framework in building:
        found = built(framework)
        logits, one = found[f"{model}/logits"], found[f"{model}/one"]
        assert found[f"{model}/parameters"] == network.parameter_count, framework
        assert np.allclose(logits[:1], one, rtol=1e-4, atol=1e-5), framework
        assert agree(reference, logits) < 1e-4, framework


@EVERY
def test_the_state_has_the_names_of_the_description(
    built: Callable[[str], Found], framework: str
) -> None:
    found = built(framework)
    names = set(found[f"{NAMED}/normalized_state"])
    assert names == set(found[f"{NAMED}/state_dict"])
    network = ARCHITECTURES[NAMED]((32, 32, 3), 10)
    assert {f"model/{name}" for name in (*network.parameters(), *network.buffers())} <= names
    assert {f"optimizer/{name}" for name in network.parameters()} <= names


@EVERY
def test_the_names_of_a_ranks_own_state_say_which_part_of_the_state_it_is(
    built: Callable[[str], Found], framework: str
) -> None:
    """The proof tells by them what a restart did not give back, and the controls leave a part out by them."""
    names = [str(name) for name in built(framework)[f"{NAMED}/local_state"]]
    assert {name.partition("/")[0] for name in names} <= {"buffer", "random", "seed"}
    groups = {name: group_of(name) for name in names}
    statistics = [name for name, group in groups.items() if group == "statistics"]
    network = ARCHITECTURES[NAMED]((32, 32, 3), 10)
    assert len(statistics) == len(network.buffers()), "each framework calls them by its own names"
    for part, beginning in REPLACED.items():
        of_part = {name for name in names if name.startswith(beginning)}
        assert {groups[name] for name in of_part} <= {part, "counters"}
        assert of_part or part not in FRAMEWORKS[framework].omissions, part


NORM, NT3 = f"small_cnn{WITHOUT_DROPOUT}", f"nt3{WITHOUT_DROPOUT}"
PLAIN = {"model": "plain_cnn", "size": 8, "steps": 6}
STEPS_WITH_NORM = 6
WHOLE = {"model": "plain_cnn", "size": 16, "steps": 8}
ALONE = {
    "plain": ["train", PLAIN],
    "decayed": ["train", {**PLAIN, "weight_decay": 0.1}],
    "rows": ["train", {"model": NT3, "size": 8, "steps": 6, "learning_rate": 0.005}],
    "norm": ["train", {"model": NORM, "size": 8, "steps": STEPS_WITH_NORM}],
    "inception": ["step", {"model": "inception", "size": 4}],
    "whole": ["train", WHOLE],
    "averaged": ["averaged", PLAIN],
    "forget": [
        "forget",
        {"part": "momentum", "others": [part for part in OMISSIONS if part != "momentum"]},
    ],
    "full": ["full", {}],
}
"""What one rank does in one launch: the parts of scenario `several`, none of which draws a random number."""
SOFTMAX = {"model": "linear", "size": 4, "steps": 20, "adamw": True, "weight_decay": 0.1}
FIRST = {"model": "gpt_tiny", "size": 4, "steps": 1, "adamw": True}
TOGETHER = {**FIRST, "steps": 4, "weight_decay": 0.1}
WITH_ADAMW = {
    "softmax": ["train", SOFTMAX],
    "first": ["train", FIRST],
    "first_decayed": ["train", {**FIRST, "weight_decay": 0.1}],
    "gpt": ["train", {**FIRST, "steps": 6}],
    "tokens": ["train", TOGETHER],
    "accumulated": ["train", {**TOGETHER, "accumulation": 3}],
    "moments": ["moments", {"model": "gpt_tiny", "adamw": True}],
}
"""Parts of ALONE of the frameworks that have AdamW, the layers of networks of tokens and gradient accumulation."""
IN_BF16 = {"bf16": ["train", {**FIRST, "steps": 6, "precision": "bf16"}]}


def parts_of(framework: str) -> dict[str, list[Any]]:
    """Those of ALONE, and of what the framework offers."""
    return {
        **ALONE,
        **(WITH_ADAMW if framework in OF_TOKENS else {}),
        **(IN_BF16 if "bf16" in FRAMEWORKS[framework].offers else {}),
    }


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Found]:
    """What one part of ALONE found."""

    @functools.cache
    def found(framework: str) -> Found:
        folder = tmp_path_factory.mktemp(framework)
        return run_scenario(framework, "several", folder, parts=parts_of(framework))[0]

    return lambda framework, part: part_of(found(framework), part)


CLEARING = ("chainer", "multi_node_checkpointer")
"""A framework and a strategy whose engine removes old files itself."""
SAVES = 13
"""After eleven ChainerMN's checkpointer keeps five files in its list and removes the others."""


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str, int], list[Found]]:
    """What the ranks of one launch found in the parts "hook", "whole" and, if they have it, "first_update" and "many"."""

    @functools.cache
    def found(framework: str, ranks: int) -> list[Found]:
        parts: dict[str, list[Any]] = {
            "hook": ["hook", {}],
            "whole": ["train", WHOLE],
        }
        if framework in OF_TOKENS:
            parts["tokens"] = ["train", {**TOGETHER, "accumulation": 2}]
        if "first_update" in FRAMEWORKS[framework].omissions:
            parts["first_update"] = ["forget", {"part": "first_update"}]
        if CLEARING[0] == framework:
            parts["many"] = ["many", {"strategy": CLEARING[1], "saves": SAVES}]
        folder = tmp_path_factory.mktemp(f"{framework}-{ranks}")
        return run_scenario(framework, "several", folder, ranks=ranks, parts=parts)

    return lambda framework, part, ranks: [part_of(each, part) for each in found(framework, ranks)]


@pytest.mark.frameworks(*OWN)
@pytest.mark.parametrize("part", ["plain", "decayed", "rows"])
def test_all_frameworks_take_the_same_steps(alone: Callable[[str, str], Found], part: str) -> None:
    """One rank, no batch norm or dropout: parameters and momenta stay together over six steps.

    `rows` is NT3, with kernels and pools along one axis only.
    """
    found = {name: alone(name, part) for name in OWN}
    network = network_of(str(ALONE[part][1]["model"]))
    for framework, arrays in found.items():
        for name in (*network.parameters(),):
            for group in ("model", "optimizer"):
                key = f"{group}/{name}"
                assert agree(found[REFERENCE][key], arrays[key]) < 1e-4, (framework, key)
        assert np.allclose(found[REFERENCE]["losses"], arrays["losses"], rtol=1e-4), framework


def adamw(
    weights: dict[str, np.ndarray],
    gradients: Callable[[int], dict[str, np.ndarray]],
    steps: int,
    *,
    learning_rate: float,
    weight_decay: float,
) -> tuple[dict[str, np.ndarray], ...]:
    """Weights, first and second moments after some steps of AdamW (Loshchilov and Hutter 2019, algorithm 2)."""
    first, second = (
        {name: np.zeros_like(each) for name, each in weights.items()} for _ in range(2)
    )
    for step in range(1, steps + 1):
        for name, gradient in gradients(step - 1).items():
            first[name] += 0.1 * (gradient - first[name])
            second[name] += 0.05 * (gradient**2 - second[name])
            ahead = (
                first[name] / (1 - 0.9**step) / (np.sqrt(second[name] / (1 - 0.95**step)) + 1e-8)
            )
            decay = weight_decay * weights[name] if name.endswith(".kernel") else 0
            weights[name] -= learning_rate * (ahead + decay)
    return weights, first, second


@pytest.mark.parametrize("framework", OWN_OF_TOKENS)
def test_adamw_takes_the_steps_of_its_paper(
    alone: Callable[[str, str], Found], framework: str
) -> None:
    """Twenty steps of softmax regression, against NumPy in float64: weights, and both moments."""
    weights = {
        name: each.astype(np.float64) for name, each in varied_weights(network_of("linear")).items()
    }

    def gradients(step: int) -> dict[str, np.ndarray]:
        images, labels = batch(step, 4, image_of("linear"))
        inputs = images.transpose(0, 3, 1, 2).reshape(4, -1)
        logits = inputs @ weights["head.kernel"].T + weights["head.bias"]
        chances = np.exp(logits - logits.max(axis=1, keepdims=True))
        error = (chances / chances.sum(axis=1, keepdims=True) - np.eye(CLASSES)[labels]) / 4
        return {"head.kernel": error.T @ inputs, "head.bias": error.sum(axis=0)}

    found = alone(framework, "softmax")
    wanted = adamw(weights, gradients, 20, learning_rate=0.01, weight_decay=0.1)
    for arrays, name in zip(
        wanted, ("model/{}", "optimizer/{}", "optimizer/{}.second_moment"), strict=True
    ):
        for parameter, array in arrays.items():
            assert agree(array, found[name.format(parameter)]) < 1e-5, name.format(parameter)


@pytest.mark.parametrize("framework", OWN_OF_TOKENS)
def test_adamw_decays_kernels_and_tables_alone(
    alone: Callable[[str, str], Found], framework: str
) -> None:
    """In a first step, decay changes each of them by learning_rate * weight_decay times itself."""
    before = varied_weights(network_of("gpt_tiny"))
    plain, decayed = alone(framework, "first"), alone(framework, "first_decayed")
    for name, weights in before.items():
        change = decayed[f"model/{name}"] - plain[f"model/{name}"]
        if name.endswith(".kernel"):
            assert np.allclose(change, -0.01 * 0.1 * weights, atol=1e-6), name
        else:
            assert not change.any(), name


@pytest.mark.frameworks(*OWN_OF_TOKENS)
def test_all_frameworks_take_the_same_steps_on_tokens(
    alone: Callable[[str, str], Found],
) -> None:
    """Six steps of AdamW."""
    found = {name: alone(name, "gpt") for name in OWN_OF_TOKENS}
    for framework, arrays in found.items():
        assert np.allclose(found[OWN_OF_TOKENS[0]]["losses"], arrays["losses"], rtol=1e-3), (
            framework
        )


@pytest.mark.parametrize(
    "framework", [name for name in OWN_OF_TOKENS if "bf16" in FRAMEWORKS[name].offers]
)
def test_bf16_changes_products_alone(alone: Callable[[str, str], Found], framework: str) -> None:
    """Weights and slots stay float32. Losses are near those of float32, but not the same."""
    plain, rounded = alone(framework, "gpt"), alone(framework, "bf16")
    assert {name: each.dtype for name, each in plain.items()} == {
        name: each.dtype for name, each in rounded.items()
    }
    assert np.allclose(plain["losses"], rounded["losses"], rtol=0.02)
    assert not np.allclose(plain["losses"], rounded["losses"], rtol=1e-6)


@pytest.mark.parametrize("framework", OWN_OF_TOKENS)
def test_every_format_and_strategy_holds_both_moments_and_a_tied_tensor_once(
    alone: Callable[[str, str], Found], framework: str
) -> None:
    """12 bytes a parameter, and no second copy of the embedding, which is the head as well."""
    found = alone(framework, "moments")
    network = network_of("gpt_tiny")
    tied = 4 * np.prod(network.parameters()["tokens.kernel"])
    for name in written_by(framework):
        assert different(part_of(found, f"read/{name}"), part_of(found, "saved")) == [], name
    for name in FRAMEWORKS[framework].formats:
        assert 0.6 * 12 * network.parameter_count < found[f"bytes/{name}"], name
        assert found[f"bytes/{name}"] < 12 * network.parameter_count + tied, name


@EACH
def test_a_step_uses_the_gradients_that_a_recovery_has_averaged(
    alone: Callable[[str, str], Found], framework: str
) -> None:
    """Twice the gradient at half the learning rate is the same step, bit for bit: both are powers of two."""
    plain, doubled = alone(framework, "plain"), alone(framework, "averaged")
    network = network_of(str(PLAIN["model"]))
    given = [len(network.parameters()), network.parameter_count]
    assert doubled["given"].tolist() == [given] * int(str(PLAIN["steps"]))
    for name in network.parameters():
        np.testing.assert_array_equal(plain[f"model/{name}"], doubled[f"model/{name}"])
    np.testing.assert_array_equal(plain["losses"], doubled["losses"])


@pytest.mark.frameworks(*OWN)
def test_all_frameworks_take_the_same_steps_with_batch_norm(
    alone: Callable[[str, str], Found],
) -> None:
    """Parameters and running means agree; running variances too, once the convention of each is taken out.

    The running variance follows the variance of the batch times n / (n - 1) (unbiased, n values a channel) in PyTorch
    and Chainer, and the batch's own (biased) in TensorFlow: `Framework.biased_variance` says which.
    """
    found = {name: alone(name, "norm") for name in OWN}
    network = ARCHITECTURES["small_cnn"]((32, 32, 3), 10)
    for framework, arrays in found.items():
        for name in network.parameters():
            key = f"model/{name}"
            assert agree(found[REFERENCE][key], arrays[key]) < BATCH_NORM_TOLERANCE, key
        for name in network.buffers():
            one, other = (
                unbiased(each, name, STEPS_WITH_NORM) for each in (found[REFERENCE], arrays)
            )
            assert agree(one, other) < BATCH_NORM_TOLERANCE, (framework, name)


@pytest.mark.frameworks(*OWN)
def test_all_frameworks_take_the_same_steps_with_branches(
    alone: Callable[[str, str], Found],
) -> None:
    found = {name: alone(name, "inception") for name in OWN}
    for framework, arrays in found.items():
        assert np.allclose(found[REFERENCE]["losses"], arrays["losses"], rtol=1e-4), framework
        assert agree(found[REFERENCE]["logits"], arrays["logits"]) < 1e-3, framework


VALUES = {"norm1": 8 * 16 * 16, "norm2": 8 * 8 * 8}
"""Of each channel that a batch norm sees in one step."""


def unbiased(found: Found, name: str, steps: int) -> np.ndarray:
    """A running variance of the biased convention as the unbiased one would have it; means as they are."""
    layer, _, kind = name.partition(".")
    statistics: np.ndarray = found[f"model/{name}"]
    if kind == "mean" or not found["biased_variance"]:
        return statistics
    initial = BATCH_NORM_DECAY**steps
    return initial + (statistics - initial) * VALUES[layer] / (VALUES[layer] - 1)


@EVERY
def test_two_ranks_with_half_the_batch_follow_one_with_the_whole(
    alone: Callable[[str, str], Found],
    together: Callable[[str, str, int], list[Found]],
    framework: str,
) -> None:
    whole = alone(framework if framework in OWN else REFERENCE, "whole")
    first, second = together(framework, "whole", 2)
    for name in ARCHITECTURES["plain_cnn"]((32, 32, 3), 10).parameters():
        assert agree(whole[f"model/{name}"], first[f"model/{name}"]) < 1e-4, name
        assert np.array_equal(first[f"model/{name}"], second[f"model/{name}"]), name
    assert np.allclose((first["losses"] + second["losses"]) / 2, whole["losses"], rtol=1e-4)
    assert not np.allclose(first["losses"], second["losses"]), "both ranks saw the same samples"


@pytest.mark.parametrize("framework", OWN_OF_TOKENS)
def test_parts_of_a_batch_add_up_to_the_same_step_of_adamw(
    alone: Callable[[str, str], Found], framework: str
) -> None:
    """Of four samples: one, one and two. Other sums of the same numbers."""
    whole, parts = alone(framework, "tokens"), alone(framework, "accumulated")
    assert np.allclose(whole["losses"], parts["losses"], rtol=1e-4)
    for name in network_of("gpt_tiny").parameters():
        assert agree(whole[f"optimizer/{name}"], parts[f"optimizer/{name}"]) < 1e-2, name


@pytest.mark.parametrize("framework", OF_TOKENS)
def test_two_ranks_that_split_their_batches_follow_one_with_adamw(
    alone: Callable[[str, str], Found],
    together: Callable[[str, str, int], list[Found]],
    framework: str,
) -> None:
    one = framework if framework in OWN else OWN_OF_TOKENS[0]
    whole, (first, second) = alone(one, "tokens"), together(framework, "tokens", 2)
    for name in network_of("gpt_tiny").parameters():
        for key in (f"model/{name}", f"optimizer/{name}", f"optimizer/{name}.second_moment"):
            assert np.array_equal(first[key], second[key]), key
        assert agree(whole[f"optimizer/{name}"], first[f"optimizer/{name}"]) < 1e-2, name
    assert np.allclose((first["losses"] + second["losses"]) / 2, whole["losses"], rtol=1e-4)


@pytest.mark.parametrize("ranks", [1, 2] if FULL else [2])
@EVERY
def test_the_hook_before_an_update_sees_what_the_step_has_not_changed_yet(
    together: Callable[[str, str, int], list[Found]], framework: str, ranks: int
) -> None:
    """Once a step, every tensor of the state; and training is the same with the hook as without.

    Meanwhile no rank has shared memory with a name, which would outlive it if it was killed.
    """
    for found in together(framework, "hook", ranks):
        assert {name.split("/")[1] for name in found if name.startswith("seen/")} == set("012")
        assert found["segments"].size == 0
        for step in "012":
            seen, before = (part_of(found, f"{when}/{step}") for when in ("seen", "before"))
            assert {group_of(name) for name in seen} >= {"weights", "momentum"}
            assert different(before, seen) == []
        assert different(part_of(found, "with"), part_of(found, "without")) == []


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Saved]:
    """A training that wrote a checkpoint in every format: one launch for each framework and number of ranks."""

    @functools.cache
    def trained(framework: str, ranks: int) -> Saved:
        folder = tmp_path_factory.mktemp(f"{framework}-{ranks}")
        return Saved(folder, run_scenario(framework, "save", folder, ranks=ranks))

    return trained


def written_by(framework: str) -> tuple[str, ...]:
    """What the scenario `save` writes: the framework's formats, and the strategies with files of their own."""
    own = (f"{BY}{strategy}" for strategy in strategies_of(framework))
    return (*FRAMEWORKS[framework].formats, *own)


OTHERS = {1: 2, 2: 1}
"""By a number of ranks: how many ranks wrote another checkpoint that they load."""
CHECKPOINTS = [(name, format) for name in OWN for format in written_by(name)]
"""That others resume with the same bits, and from what other ranks wrote, is in test_determinism.py and test_shards.py."""


@pytest.fixture(scope="module")
def resumed(
    tmp_path_factory: pytest.TempPathFactory, saved: Callable[[str, int], Saved]
) -> Callable[[str, str, int], list[Found]]:
    """Of each rank, what it had at the end after it went on from the checkpoint of a format or strategy.

    A launch reads the checkpoints of all formats, one after another; in `make test-full` each format has its own.
    """

    @functools.cache
    def gone_on(framework: str, formats: tuple[str, ...], ranks: int) -> list[Found]:
        folder = tmp_path_factory.mktemp(f"{framework}-{ranks}-resumed")
        others = saved(framework, OTHERS[ranks]).folder if ranks in OTHERS else None
        return run_scenario(
            framework, "resume", folder,
            ranks=ranks, formats=formats, saved=str(saved(framework, ranks).folder),
            others=None if others is None else str(others),
        )  # fmt: skip

    def of(framework: str, format: str, ranks: int) -> list[Found]:
        alone = FULL and format in written_by(framework)
        together = (format,) if alone else written_by(framework)
        return [part_of(found, format) for found in gone_on(framework, together, ranks)]

    return of


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize(("framework", "format"), CHECKPOINTS)
def test_a_new_process_goes_on_from_a_checkpoint_bit_for_bit(
    saved: Callable[[str, int], Saved],
    resumed: Callable[[str, str, int], list[Found]],
    framework: str,
    format: str,
    ranks: int,
) -> None:
    """With batch norm, dropout and momentum; parameters, slots, statistics, random states and logits."""
    pairs = zip(saved(framework, ranks).found, resumed(framework, format, ranks), strict=True)
    for before, after in pairs:
        assert different(at_the_end(before), after) == []


STRATEGIES_OF_EACH = [(name, each) for name in OWN for each in strategies_of(name)]
FOR_NO_MORE_RANKS = {"multi_node_checkpointer": "was written by 1 ranks"}
"""Strategies whose versions only as many ranks or fewer can load, and the words with which they refuse more."""


@pytest.mark.parametrize("ranks", OTHERS)
@pytest.mark.parametrize(("framework", "strategy"), STRATEGIES_OF_EACH)
def test_other_ranks_load_what_one_or_two_have_written_bit_for_bit(
    saved: Callable[[str, int], Saved],
    resumed: Callable[[str, str, int], list[Found]],
    framework: str,
    strategy: str,
    ranks: int,
) -> None:
    then = part_of(saved(framework, OTHERS[ranks]).found[0], "saved")
    held = {name for name in then if group_of(name) != "statistics"}
    assert held
    for now in resumed(framework, f"of_others/{strategy}", ranks):
        if ranks > OTHERS[ranks] and strategy in FOR_NO_MORE_RANKS:
            assert FOR_NO_MORE_RANKS[strategy] in str(now["refused"])
        else:
            assert {n: then[n].tobytes() for n in held} == {n: now[n].tobytes() for n in held}


@pytest.mark.parametrize("ranks", RANKS)
@EACH
def test_strategies_leave_no_thread_and_no_process(
    saved: Callable[[str, int], Saved], framework: str, ranks: int
) -> None:
    for found in saved(framework, ranks).found:
        assert list(found["left"]) == []


@pytest.mark.parametrize(("framework", "strategy"), STRATEGIES_OF_EACH)
def test_a_full_disk_is_an_error_of_the_save_or_of_the_next(
    alone: Callable[[str, str], Found], framework: str, strategy: str
) -> None:
    """A limit on the size of files fails the engine's writes, wherever they are made; the run names that cause."""
    said = str(alone(framework, "full")[strategy])
    assert said.startswith("the checkpoint of step 2 cannot be written to "), said
    assert "File too large" in said


@pytest.mark.frameworks(CLEARING[0])
def test_the_removal_of_an_engine_spares_the_versions_of_the_store(
    together: Callable[[str, str, int], list[Found]],
) -> None:
    for rank, found in enumerate(together(CLEARING[0], "many", 2)):
        assert list(found["sound"]) == list(range(1, SAVES + 1))
        expected = {f"snapshot.{rank}.{step}" for step in range(7, SAVES + 1)}
        assert set(found["listed"]) == expected, "the engine has removed nothing"


@EACH
def test_a_step_after_forgetting_the_momentum_is_one_from_zero_slots(
    alone: Callable[[str, str], Found], framework: str
) -> None:
    """And one rank has no other part to forget."""
    found = alone(framework, "forget")
    for name in ARCHITECTURES["plain_cnn"]((32, 32, 3), 10).parameters():
        assert found[f"before/optimizer/{name}"].any()
        for tensor in (f"model/{name}", f"optimizer/{name}"):
            assert found[f"first/{tensor}"].tobytes() == found[f"begun/{tensor}"].tobytes(), tensor


@pytest.mark.parametrize(
    "framework", [name for name, entry in TRIED.items() if "first_update" in entry.omissions]
)
def test_a_first_update_that_was_forgotten_moves_nothing(
    together: Callable[[str, str, int], list[Found]], framework: str
) -> None:
    for found in together(framework, "first_update", 2):
        before, first, second = (
            {name: a for name, a in found.items() if name.startswith(f"{moment}/model/")}
            for moment in ("before", "first", "second")
        )
        assert [a.tobytes() for a in before.values()] == [a.tobytes() for a in first.values()]
        assert [a.tobytes() for a in first.values()] != [a.tobytes() for a in second.values()]


def different(first: Found, second: Found) -> list[str]:
    assert first.keys() == second.keys()
    return [name for name in first if first[name].tobytes() != second[name].tobytes()]

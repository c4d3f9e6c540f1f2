"""`config/studies/gpu.yaml`: what it trains, in which order, and whether it is planned to end within eight minutes."""

from __future__ import annotations

from collections import Counter

import pytest

from ckptbench.config.expansion import expand
from ckptbench.config.study import load_config
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.training import proven_by
from tests.gpu_study import gpu_study, on_cpu

CONFIG = load_config(gpu_study())
CELLS = expand(CONFIG)
STRATEGIES = {"native", "async", "deepfreeze", "dcp", "dcp_async", "torch_checkpointing"}

START_S = {"resnet50": 6.0, "gpt2": 10.0, "small_cnn": 6.0}
"""Until the first step, and from the last one until the next run: 4.5 s of ResNet-50 and 8 s of GPT-2's weights on two cores without a
GPU, and CUDA."""
STEP_S = {"resnet50": 0.12, "gpt2": 0.09, "small_cnn": 0.03}
"""GPT-2: twice the 45 ms of half the batch on an H100. ResNet-50: 1,400 images a second there, 40 ms for the batch and 30 for its copy."""
SAVE_S = {"async": 0.52, "deepfreeze": 0.51, "native": 1.86, "dcp": 1.86, "dcp_async": 2.41, "torch_checkpointing": 2.41}  # fmt: skip
"""Of GPT-2 on the H100 of docs/strategies.md; `dcp` as `native`, and `torch_checkpointing` as `dcp_async`."""
VERSIONS = {"gpt2": 1.0, "resnet50": 0.137, "small_cnn": 0.0}
"""Bytes of a version over those of GPT-2."""
AROUND_S = 35.0
"""Start of the workflow, datasets, tables, figures and the answer."""


def seconds(cell: Cell) -> float:
    """A save in the background costs what it takes longer than the steps until the next one."""
    steps = CONFIG.training.steps_per_epoch or 0
    start_s, trained_s = START_S[cell.model], steps * STEP_S[cell.model]
    if cell.is_baseline:
        return start_s + trained_s
    saves = steps // cell.interval.every
    saved_s = saves * SAVE_S[cell.strategy.name] * VERSIONS[cell.model]
    longer_s = saved_s if cell.strategy.name in ("native", "dcp") else max(saved_s - trained_s, saved_s / saves)  # fmt: skip
    return (start_s + trained_s) * (1 + cell.is_killed) + longer_s


def test_it_is_planned_to_end_within_eight_minutes() -> None:
    assert sum(map(seconds, CELLS)) + AROUND_S < 8 * 60


def test_the_headline_comes_first_with_all_its_repeats_and_all_else_has_one() -> None:
    headline = [cell for cell in CELLS if cell.repeat > 0 or cell.model == "resnet50"][:18]
    assert CELLS[:18] == headline
    assert {(cell.framework, cell.model, cell.deterministic) for cell in headline} == {("pytorch", "resnet50", False)}  # fmt: skip
    costs = Counter((cell.strategy.name, str(cell.interval)) for cell in headline)
    assert costs == dict.fromkeys((("native", "never"), ("deepfreeze", "s1"), ("deepfreeze", "s10"), ("async", "s1"), ("native", "s1"), ("native", "s10")), 3)  # fmt: skip
    assert {cell.repeat for cell in CELLS[18:]} == {0}


def test_every_strategy_saves_both_networks_and_shards_are_saved_too() -> None:
    for framework, model, names in (
        ("pytorch", "resnet50", STRATEGIES),
        ("pytorch", "gpt2", STRATEGIES),
        ("pytorch_fsdp", "gpt2", {"native", "deepfreeze", "dcp", "dcp_async"}),  # native: never
    ):
        found = [cell for cell in CELLS if (cell.framework, cell.model) == (framework, model)]
        assert {cell.strategy.name for cell in found} == names
        assert sum(cell.is_baseline for cell in found if cell.repeat == 0) == 1
    gpts = [cell for cell in CELLS if cell.model == "gpt2"]
    assert {(cell.optimizer, cell.precision) for cell in gpts} == {("adamw", "bf16")}


def test_proofs_are_of_runs_of_their_own_that_are_not_timed() -> None:
    proven = proven_by(CELLS)
    compared = [cell for cell in CELLS if cell.is_compared]
    assert [cell.framework for cell in compared] == ["pytorch", "pytorch_fsdp"]
    assert {cell.id for cell in CELLS if cell.model == "small_cnn"} == proven
    assert len(proven) == 4


@pytest.mark.parametrize("whole", [True, False])
def test_on_a_cpu_every_entry_of_it_is_trained(whole: bool) -> None:
    found = expand(load_config(on_cpu(whole=whole)))
    assert {cell.accelerator for cell in found} == {"cpu"}
    assert {cell.framework for cell in found} == {cell.framework for cell in CELLS}
    assert sum(cell.is_compared for cell in found) == 2
    if whole:
        assert len(found) == len([cell for cell in CELLS if cell.repeat == 0])

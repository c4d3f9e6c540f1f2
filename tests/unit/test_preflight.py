"""What a run needs, estimated from above."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ckptbench.checkpointing import preflight
from ckptbench.common.errors import LaunchError
from ckptbench.config.inputs import sizes_of
from ckptbench.inputs.datasets.dataset import Dataset
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.run.plan import Plan, Sizes


def test_memory_grows_with_ranks_and_disk_with_versions(make_plan: Callable[..., Plan]) -> None:
    plan = make_plan("e1")
    assert preflight.needed_memory(plan, 2) == 2 * preflight.needed_memory(plan, 1)
    more = dataclasses.replace(plan, training=dataclasses.replace(plan.training, keep_during_run=5))
    assert preflight.needed_disk(more) == pytest.approx(2 * preflight.needed_disk(plan), abs=2)


def test_a_version_holds_weights_momenta_and_the_statistics_of_every_rank(
    make_plan: Callable[..., Plan],
) -> None:
    plan = make_plan("e1")
    cell = dataclasses.replace(plan.cell, ranks=3)
    sizes = Sizes(samples=64, parameters=100, buffers=10)
    needed = preflight.needed_disk(dataclasses.replace(plan, cell=cell, sizes=sizes), 1)
    assert needed == int(2 * 4 * (100 + 100 + 3 * 10) * preflight.FORMAT_MARGIN)


def test_chainers_own_checkpointer_writes_the_state_once_a_rank(
    make_plan: Callable[..., Plan],
) -> None:
    plan = make_plan("e1")
    own = {"strategy": PluginSpec("multi_node_checkpointer"), "format": "npz_compressed"}
    cell = dataclasses.replace(plan.cell, framework="chainer", ranks=3, **own)
    sizes = Sizes(samples=64, parameters=100, buffers=10)
    needed = preflight.needed_disk(dataclasses.replace(plan, cell=cell, sizes=sizes), 1)
    assert needed == int(2 * 4 * 3 * (100 + 100 + 10) * preflight.FORMAT_MARGIN)


def test_adamw_needs_twelve_bytes_a_parameter_on_disk_and_a_slot_more_in_memory(
    make_plan: Callable[..., Plan],
) -> None:
    plan = dataclasses.replace(make_plan("e1"), sizes=Sizes(samples=64, parameters=10**6))
    cell = dataclasses.replace(plan.cell, framework="pytorch", format="torch_save")
    sgd, adamw = (
        dataclasses.replace(plan, cell=dataclasses.replace(cell, optimizer=optimizer))
        for optimizer in ("sgd", "adamw")
    )
    assert preflight.needed_disk(adamw, 1) == int(2 * 12e6 * preflight.FORMAT_MARGIN)
    assert preflight.needed_memory(adamw, 2) - preflight.needed_memory(sgd, 2) == 2 * 4e6


def test_a_baseline_needs_no_disk(make_plan: Callable[..., Plan]) -> None:
    plan = make_plan("never")
    assert preflight.needed_disk(plan) == 0


def test_resnet50_with_two_ranks_fits_a_small_machine(
    make_plan: Callable[..., Plan], dataset: Path
) -> None:
    plan = make_plan("e1")
    cell = dataclasses.replace(plan.cell, ranks=2, model="resnet50", batch_size=8)
    sizes = sizes_of("resnet50", Dataset.open(dataset))
    needed = preflight.needed_memory(dataclasses.replace(plan, cell=cell, sizes=sizes), 2)
    assert 2e9 < needed < 5e9


NT3, WINDOWS = {"model": "nt3", "batch_size": 4}, {"sample_shape": (60_483, 1, 1), "classes": 2}
GOOGLENET = {"model": "googlenet", "batch_size": 8}
IMAGES = {"sample_shape": (224, 224, 3), "classes": 1000}


@pytest.mark.parametrize(
    ("cell", "images", "needed"),
    [
        # Peaks of three steps: 3.1 GB in PyTorch, 3.8 GB in TensorFlow, 6.0 GB in Chainer, which has windows.
        ({"framework": "pytorch", **NT3}, WINDOWS, 6.1e9),
        ({"framework": "chainer", **NT3}, WINDOWS, 8.6e9),
        # Branches count. At most 0.9 GB in PyTorch, 1.3 GB in TensorFlow, 0.9 GB in Chainer.
        ({"framework": "pytorch", **GOOGLENET}, IMAGES, 1.82e9),
        ({"framework": "chainer", **GOOGLENET}, IMAGES, 1.94e9),
    ],
)
def test_models_need_the_memory_that_was_measured(
    make_plan: Callable[..., Plan],
    dataset: Path,
    cell: dict[str, Any],
    images: dict[str, Any],
    needed: float,
) -> None:
    plan = make_plan("never")
    sizes = sizes_of(cell["model"], dataclasses.replace(Dataset.open(dataset), **images))
    plan = dataclasses.replace(plan, cell=dataclasses.replace(plan.cell, **cell), sizes=sizes)
    assert preflight.needed_memory(plan, 1) == pytest.approx(needed, rel=0.02)


def test_the_versions_from_which_a_run_goes_on_count_as_free(
    make_plan: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan("e1")
    needed = preflight.needed_disk(plan)
    usage = shutil.disk_usage(plan.run_folder.parent)._replace(free=needed - 100_000)
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(LaunchError, match="are free there"):
        preflight.check(plan, ranks_here=1)
    (folder := plan.checkpoint_folder / "version-00000004" / "state").mkdir(parents=True)
    (folder / "model.npz").write_bytes(bytes(100_000))
    with pytest.raises(LaunchError, match="are free there"):
        preflight.check(plan, ranks_here=1)  # without a manifest it is left of a removed one
    (folder.parent / "manifest.json").touch()
    preflight.check(plan, ranks_here=1)


def test_available_memory_is_less_than_installed() -> None:
    available = preflight.available_memory()
    assert available is not None
    assert 1e7 < available < 1e13

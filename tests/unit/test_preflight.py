"""What a run needs, estimated from above."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ckptbench.data.dataset import Dataset
from ckptbench.errors import LaunchError
from ckptbench.launch import preflight
from ckptbench.runs.plan import Plan


def test_memory_grows_with_ranks_and_disk_with_versions(make_plan: Callable[..., Plan]) -> None:
    plan = make_plan("e1")
    dataset = Dataset.open(plan.dataset_folder)
    assert preflight.needed_memory(plan, dataset, 2) == 2 * preflight.needed_memory(
        plan, dataset, 1
    )
    more = dataclasses.replace(plan, training=dataclasses.replace(plan.training, keep_during_run=5))
    assert preflight.needed_disk(more, dataset) == pytest.approx(
        2 * preflight.needed_disk(plan, dataset), abs=2
    )


def test_a_baseline_needs_no_disk(make_plan: Callable[..., Plan]) -> None:
    plan = make_plan("never")
    assert preflight.needed_disk(plan, Dataset.open(plan.dataset_folder)) == 0


def test_resnet50_with_two_ranks_fits_a_small_machine(
    make_plan: Callable[..., Plan], dataset: Path
) -> None:
    plan = make_plan("e1")
    cell = dataclasses.replace(plan.cell, ranks=2, model="resnet50", batch_size=8)
    needed = preflight.needed_memory(dataclasses.replace(plan, cell=cell), Dataset.open(dataset), 2)
    assert 2e9 < needed < 5e9


def test_the_versions_from_which_a_run_goes_on_count_as_free(
    make_plan: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan("e1")
    needed = preflight.needed_disk(plan, Dataset.open(plan.dataset_folder))
    usage = shutil.disk_usage(plan.run_folder.parent)._replace(free=needed - 1)
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(LaunchError, match="are free there"):
        preflight.check(plan, ranks_here=1)
    (version := plan.checkpoint_folder / "version-00000004").mkdir(parents=True)
    (version / "model.npz").write_bytes(b"1")
    preflight.check(plan, ranks_here=1)


def test_available_memory_is_less_than_installed() -> None:
    available = preflight.available_memory()
    assert available is not None
    assert 1e7 < available < 1e13

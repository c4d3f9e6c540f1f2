"""What a run is made from beside its cell: its plan gets the checksums of the dataset and of the lock, and the sizes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ckptbench.data.dataset import Dataset, dataset_sha256
from ckptbench.environments.lock_file import pinned_sha256
from ckptbench.networks.models import network_of
from ckptbench.runs.plan import Plan, Sizes


def with_inputs(plan: Plan, lock: Path) -> Plan:
    """The plan as the launcher takes it. `lock` is that of the framework's environment.

    Raises DataError if the dataset is not a prepared one.
    """
    dataset = Dataset.open(plan.dataset_folder)
    return dataclasses.replace(
        plan,
        dataset_sha256=dataset_sha256(plan.dataset_folder),
        lock_sha256=pinned_sha256(lock),
        sizes=sizes_of(plan.cell.model, dataset),
    )


def sizes_of(model: str, dataset: Dataset) -> Sizes:
    """The sizes of the dataset, and of the model for it."""
    network = network_of(model, dataset.image_shape, dataset.classes)
    return Sizes(
        samples=len(dataset.train_labels),
        parameters=network.parameter_count,
        buffers=network.buffer_count,
        activations=network.activation_count(dataset.image_shape),
        unfolded=network.unfolded_count(dataset.image_shape),
    )

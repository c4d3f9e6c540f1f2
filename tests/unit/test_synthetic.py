"""The made-up dataset: of the shape that was asked for, reproducible, and learnable."""

from pathlib import Path

import numpy as np
import pytest

from ckptbench.common.errors import DataError
from ckptbench.inputs.datasets.dataset import Dataset
from ckptbench.inputs.datasets.sources import prepare, synthetic


def test_it_has_the_shape_that_was_asked_for(tmp_path: Path) -> None:
    settings = {"height": 9, "width": 20, "channels": 1, "classes": 3, "train_samples": 30}
    dataset = prepare("synthetic", tmp_path, {**settings, "test_samples": 7})
    assert dataset.train_images.shape == (30, 9, 20, 1)
    assert dataset.test_images.shape == (7, 9, 20, 1)
    assert set(dataset.train_labels) == {0, 1, 2}


def test_it_can_have_the_shape_of_nt3(tmp_path: Path) -> None:
    settings = {"height": 60_483, "width": 1, "channels": 1, "classes": 2}
    dataset = prepare("synthetic", tmp_path, {**settings, "train_samples": 20, "test_samples": 5})
    assert dataset.batch("train", range(3))[0].shape == (3, 60_483, 1, 1)
    assert set(dataset.train_labels) == {0, 1}
    assert _accuracy_of_nearest_mean(dataset) == 1


def test_it_depends_on_the_seed_alone(tmp_path: Path) -> None:
    settings = {"train_samples": 20, "test_samples": 20}
    first = prepare("synthetic", tmp_path / "first", settings)
    again = prepare("synthetic", tmp_path / "again", settings)
    other = prepare("synthetic", tmp_path / "other", {**settings, "seed": 1})
    np.testing.assert_array_equal(first.train_images, again.train_images)
    assert (first.train_images != other.train_images).any()
    assert (first.train_images != first.test_images).any()


def test_many_blocks_are_as_good_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "BLOCK_BYTES", 7 * 8 * 8 * 3)
    settings = {"height": 8, "width": 8, "train_samples": 200, "test_samples": 100}
    dataset = prepare("synthetic", tmp_path, settings)
    assert len(np.unique(dataset.train_images.reshape(200, -1), axis=0)) == 200
    assert _accuracy_of_nearest_mean(dataset) == 1


def test_it_can_be_learnt(tmp_path: Path) -> None:
    settings = {"classes": 20, "train_samples": 400, "test_samples": 100}
    assert _accuracy_of_nearest_mean(prepare("synthetic", tmp_path, settings)) == 1


def _accuracy_of_nearest_mean(dataset: Dataset) -> float:
    images, labels = dataset.batch("train", range(len(dataset.train_labels)))
    means = np.stack([images[labels == label].mean(axis=0) for label in range(dataset.classes)])
    images, labels = dataset.batch("test", range(len(dataset.test_labels)))
    distances = ((images[:, np.newaxis] - means) ** 2).sum(axis=(2, 3, 4))
    return float((distances.argmin(axis=1) == labels).mean())


def test_a_setting_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^datasets.synthetic: .* argument 'sed'"):
        prepare("synthetic", tmp_path, {"sed": 1})

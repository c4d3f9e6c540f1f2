"""How ranks read a prepared dataset, and in which order."""

from pathlib import Path

import numpy as np
import pytest

from ckptbench.common.errors import DataError
from ckptbench.inputs.datasets.dataset import Dataset, dataset_sha256
from ckptbench.inputs.datasets.order import (
    BatchSlice,
    batch_slices,
    epoch_order,
    evaluation_shard,
    rank_batch,
)
from ckptbench.inputs.datasets.sources import prepare
from ckptbench.matrix.training import steps_per_epoch


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A prepared dataset of 40 and 12 images of 6x5 pixels in 2 channels and 4 classes."""
    shape = {"height": 6, "width": 5, "channels": 2, "classes": 4}
    prepare("synthetic", tmp_path, {**shape, "train_samples": 40, "test_samples": 12})
    return tmp_path


def test_an_opened_dataset_knows_its_shape(folder: Path) -> None:
    dataset = Dataset.open(folder)
    assert (dataset.name, dataset.sample_shape, dataset.classes) == ("synthetic", (6, 5, 2), 4)
    assert dataset.train_images.shape == (40, 6, 5, 2)
    assert dataset.test_labels.shape == (12,)


def test_a_dataset_of_an_earlier_version_keeps_its_checksum(folder: Path) -> None:
    """Otherwise every run of an old study would be made again."""
    assert dataset_sha256(folder).startswith("5473fc0b6df65fc9bad03b5c746b7c25")


def test_arrays_stay_on_disk(folder: Path) -> None:
    images = Dataset.open(folder).train_images
    assert type(images) is np.ndarray
    assert isinstance(images.base, np.memmap)
    assert not images.flags.writeable


def test_a_batch_is_float_images_scaled_to_one_and_their_labels(folder: Path) -> None:
    dataset = Dataset.open(folder)
    indices = np.array([7, 0, 39])
    images, labels = dataset.batch("train", indices)
    assert (images.dtype, images.shape) == (np.float32, (3, 6, 5, 2))
    assert images.min() >= -1
    assert images.max() <= 1
    pixels = np.rint((images + 1) * 127.5).astype(np.uint8)
    np.testing.assert_array_equal(pixels, dataset.train_images[indices])
    np.testing.assert_array_equal(labels, dataset.train_labels[indices])


def test_a_batch_takes_a_shard_as_it_is_even_an_empty_one(folder: Path) -> None:
    dataset = Dataset.open(folder)
    _, labels = dataset.batch("test", evaluation_shard(12, 1, 2, None))
    np.testing.assert_array_equal(labels, dataset.test_labels[6:])
    assert len(dataset.batch("test", range(0))[0]) == 0


def test_a_folder_without_description_is_no_dataset(folder: Path) -> None:
    (folder / "dataset.json").unlink()
    with pytest.raises(DataError, match=rf"{folder}: not a prepared dataset.*run the study again"):
        Dataset.open(folder)


def test_a_cut_array_is_refused(folder: Path) -> None:
    path = folder / "train_images.npy"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"train_images\.npy: has \d+ bytes, was prepared with \d+"):
        Dataset.open(folder)


def test_a_missing_array_is_refused(folder: Path) -> None:
    (folder / "test_labels.npy").unlink()
    with pytest.raises(DataError, match=r"test_labels\.npy: cannot be read"):
        Dataset.open(folder)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "cannot be read as JSON"),
        ("{}", "not the description of a dataset"),
        ('{"schema_version": 1}', "not the description of a dataset"),
    ],
)
def test_a_description_that_is_none_is_refused(folder: Path, text: str, reason: str) -> None:
    (folder / "dataset.json").write_text(text)
    with pytest.raises(DataError, match=reason):
        Dataset.open(folder)


def test_the_order_of_an_epoch_depends_on_seed_and_epoch_alone() -> None:
    order = epoch_order(seed=3, epoch=1, samples=10)
    # The same in every framework's environment, whatever its NumPy.
    assert order.tolist() == [4, 1, 2, 8, 5, 0, 7, 9, 6, 3]
    assert epoch_order(3, 2, 10).tolist() != order.tolist()
    assert epoch_order(4, 1, 10).tolist() != order.tolist()


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_ranks_together_read_what_one_rank_reads(world_size: int) -> None:
    order = epoch_order(0, 0, 103)
    slices = batch_slices(range(world_size), world_size, 12 // world_size)
    for step in range(steps_per_epoch(103, world_size, 12 // world_size, None)):
        together = [rank_batch(order, step, each, 12) for each in slices]
        np.testing.assert_array_equal(
            np.concatenate(together), rank_batch(order, step, BatchSlice(0, 12), 12)
        )


def test_survivors_share_the_same_global_batch_evenly() -> None:
    assert batch_slices([0, 2], 3, 8) == [BatchSlice(0, 12), BatchSlice(12, 12)]
    # 32 samples for three ranks: nobody reads the last two.
    assert batch_slices([0, 1, 3], 4, 8) == [
        BatchSlice(0, 10),
        BatchSlice(10, 10),
        BatchSlice(20, 10),
    ]


def test_or_the_global_batch_shrinks_and_everybody_reads_what_it_did() -> None:
    assert batch_slices([0, 2], 3, 8, kept=False) == [BatchSlice(0, 8), BatchSlice(16, 8)]


def test_an_incomplete_global_batch_is_dropped() -> None:
    order = epoch_order(0, 0, 103)
    assert steps_per_epoch(103, world_size=2, batch_size=6, limit=None) == 8
    assert len(rank_batch(order, 7, BatchSlice(6, 6), 12)) == 6
    with pytest.raises(IndexError, match="step 8 is past the last whole batch of 103 samples"):
        rank_batch(order, 8, BatchSlice(0, 6), 12)


def test_the_limit_shortens_an_epoch_and_never_lengthens_it() -> None:
    assert steps_per_epoch(100, 1, 10, limit=3) == 3
    assert steps_per_epoch(100, 1, 10, limit=30) == 10


def test_an_epoch_without_a_whole_batch_is_refused() -> None:
    with pytest.raises(DataError, match=r"2 ranks with batch size 64 need 128 .* has 100: use a"):
        steps_per_epoch(100, world_size=2, batch_size=64, limit=None)


@pytest.mark.parametrize("world_size", [1, 2, 3, 7, 50])
@pytest.mark.parametrize(("limit", "total"), [(None, 41), (0, 0), (10, 10), (99, 41)])
def test_test_shards_are_disjoint_and_complete(
    world_size: int, limit: int | None, total: int
) -> None:
    shards = [evaluation_shard(41, rank, world_size, limit) for rank in range(world_size)]
    assert [sample for shard in shards for sample in shard] == list(range(total))
    sizes = [len(shard) for shard in shards]
    assert max(sizes) - min(sizes) <= 1

"""How a dataset's folder is written: whole or not at all."""

import errno
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from ckptbench.common.errors import DataError
from ckptbench.inputs.datasets.dataset import Dataset
from ckptbench.inputs.datasets.sources import prepare
from ckptbench.inputs.datasets.sources.source import Block, Content
from ckptbench.inputs.datasets.sources.writing import write_dataset

TINY = {"height": 4, "width": 4, "train_samples": 8, "test_samples": 4}


def test_the_description_names_source_parameters_and_checksums(tmp_path: Path) -> None:
    prepare("synthetic", tmp_path, TINY)
    description = json.loads((tmp_path / "dataset.json").read_text())
    assert description["name"] == "synthetic"
    assert description["source"] == "generated"
    assert description["made_from"]["train_samples"] == 8
    assert len(description["files"]) == 4
    for name, file in description["files"].items():
        content = (tmp_path / name).read_bytes()
        assert file["bytes"] == len(content)
        assert file["sha256"] == hashlib.sha256(content).hexdigest()


def test_nothing_else_is_left_in_the_folder(tmp_path: Path) -> None:
    prepare("synthetic", tmp_path, TINY)
    assert len(list(tmp_path.iterdir())) == 5


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        DataError,
        match=r"file/digits: .*Not a directory; choose another folder",
    ):
        prepare("synthetic", tmp_path / "file" / "digits", TINY)


def test_a_disk_that_fills_up_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "train_images.npy.partial").symlink_to("/dev/full")
    with pytest.raises(
        DataError,
        match=r"cannot be written: No space left on device; .* free some, or choose another",
    ):
        prepare("synthetic", tmp_path, TINY)
    assert list(tmp_path.iterdir()) == []


def _interrupted() -> Iterator[Block]:
    yield np.zeros((1, 2, 2, 1), np.uint8), np.zeros(1, np.int64)
    raise KeyboardInterrupt


def _full() -> Iterator[Block]:
    yield np.zeros((1, 2, 2, 1), np.uint8), np.zeros(1, np.int64)
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("blocks", "raised"), [(_interrupted, KeyboardInterrupt), (_full, DataError)]
)
def test_what_dies_half_way_leaves_the_former_dataset_whole(
    tmp_path: Path, blocks: Callable[[], Iterator[Block]], raised: type[BaseException]
) -> None:
    prepare("synthetic", tmp_path, TINY)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    content = Content(
        source="a test",
        sample_shape=(2, 2, 1),
        classes=2,
        samples={"train": 2, "test": 1},
        blocks={"train": blocks(), "test": []},
    )
    with pytest.raises(raised):
        write_dataset(tmp_path, "broken", content, {})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert Dataset.open(tmp_path).name == "synthetic"


def test_a_folder_whose_files_are_half_replaced_is_no_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare("synthetic", tmp_path, TINY)
    replace = Path.replace

    def replace_images(partial: Path, target: Path) -> None:
        if "labels" in partial.name:
            raise KeyboardInterrupt
        replace(partial, target)

    monkeypatch.setattr(Path, "replace", replace_images)
    with pytest.raises(KeyboardInterrupt):
        prepare("synthetic", tmp_path, {**TINY, "seed": 2})
    with pytest.raises(DataError, match="not a prepared dataset"):
        Dataset.open(tmp_path)


def test_a_reader_keeps_the_samples_that_it_opened(tmp_path: Path) -> None:
    before = prepare("synthetic", tmp_path, {**TINY, "seed": 1})
    images = before.train_images.copy()
    after = prepare("synthetic", tmp_path, {**TINY, "seed": 2})
    np.testing.assert_array_equal(before.train_images, images)
    assert (after.train_images != images).any()

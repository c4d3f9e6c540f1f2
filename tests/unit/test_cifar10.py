"""CIFAR-10 from an archive of the official layout, and the archives that are not what they claim to be."""

import io
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckptbench.common.errors import DataError
from ckptbench.common.files import file_sha256
from ckptbench.inputs.datasets.sources import cifar10, prepare

SAMPLES = 4
NAMES = [*cifar10.TRAIN_BATCHES, cifar10.TEST_BATCH]


def make_batch(number: int) -> dict[bytes, Any]:
    random = np.random.default_rng(number)
    return {
        b"labels": random.integers(10, size=SAMPLES).tolist(),
        b"data": random.integers(256, size=(SAMPLES, 3072), dtype=np.uint8),
    }


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive of the official layout, which counts as the official one."""
    path = tmp_path / "archive.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        for number, name in enumerate(NAMES):
            content = pickle.dumps(make_batch(number), protocol=2)
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    monkeypatch.setattr(cifar10, "SHA256", file_sha256(path))
    return path


def test_the_official_layout_is_read(tmp_path: Path, archive: Path) -> None:
    dataset = prepare("cifar10", tmp_path / "cifar10", {"archive": str(archive)})
    assert (dataset.sample_shape, dataset.classes) == ((32, 32, 3), 10)
    assert (len(dataset.train_labels), len(dataset.test_labels)) == (5 * SAMPLES, SAMPLES)
    assert dataset.train_labels[SAMPLES : 2 * SAMPLES].tolist() == make_batch(1)[b"labels"]
    assert dataset.test_labels.tolist() == make_batch(5)[b"labels"]
    row = make_batch(0)[b"data"][3]
    for channel in range(3):
        plane = row[1024 * channel : 1024 * (channel + 1)].reshape(32, 32)
        np.testing.assert_array_equal(dataset.train_images[3, :, :, channel], plane)


def test_an_archive_with_another_checksum_is_refused_before_a_pickle_of_it_is_read(
    tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.write_bytes(archive.read_bytes()[:-9])
    monkeypatch.setattr(pickle, "load", lambda *_, **__: pytest.fail("read"))
    with pytest.raises(DataError, match=r"archive\.tar\.gz: incomplete, or not the expected"):
        prepare("cifar10", tmp_path / "cifar10", {"archive": str(archive)})
    assert not (tmp_path / "cifar10").exists()


def test_a_missing_archive_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere; set datasets\.cifar10\.archive to a copy of"):
        prepare("cifar10", tmp_path, {"archive": str(tmp_path / "nowhere")})


def test_without_a_path_the_archive_is_downloaded_once(
    tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cifar10, "URL", archive.as_uri())
    prepare("cifar10", tmp_path / "cifar10", {})
    archive.unlink()
    assert len(prepare("cifar10", tmp_path / "cifar10", {}).test_labels) == SAMPLES


@pytest.mark.parametrize(
    ("url", "reason"),
    [("file:///nowhere", "No such file"), ("http://127.0.0.1:9/archive", "Connection refused")],
)
def test_a_failed_download_names_url_reason_and_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, reason: str
) -> None:
    monkeypatch.setattr(cifar10, "URL", url)
    with pytest.raises(DataError, match=f"^{url} cannot .*{reason}.*; fetch it elsewhere and set"):
        cifar10.download(tmp_path / "target")
    assert list(tmp_path.iterdir()) == []

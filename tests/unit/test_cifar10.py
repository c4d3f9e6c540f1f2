"""CIFAR-10 from an archive of the official layout, and the archives that are not what they claim to be."""

import hashlib
import io
import os
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckptbench.data.sources import archive as archives
from ckptbench.data.sources import cifar10, pickled, prepare
from ckptbench.errors import DataError

SAMPLES = 4


def make_batch(number: int) -> dict[bytes, Any]:
    random = np.random.default_rng(number)
    return {
        b"batch_label": b"a batch",
        b"labels": random.integers(10, size=SAMPLES).tolist(),
        b"data": random.integers(256, size=(SAMPLES, 3072), dtype=np.uint8),
        b"filenames": [b"image.png"] * SAMPLES,
    }


def like_python_2(batch: object) -> bytes:
    """The bytes that Python 2 wrote: protocol 2, its byte strings, and NumPy's old module names."""
    file = io.BytesIO()
    _Python2Pickler(file, protocol=2).dump(batch)
    return file.getvalue().replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


class _Python2Pickler(pickle._Pickler):
    def _save_string(self, value: bytes | str) -> None:
        encoded = value.encode() if isinstance(value, str) else value
        self.write(pickle.BINSTRING + len(encoded).to_bytes(4, "little") + encoded)
        self.memoize(value)

    dispatch = pickle._Pickler.dispatch | {bytes: _save_string, str: _save_string}


def like_python_3(batch: object) -> bytes:
    return pickle.dumps(batch, protocol=2)


NAMES = [*cifar10.TRAIN_BATCHES, cifar10.TEST_BATCH]


def make_archive(
    path: Path,
    replaced: dict[str, bytes | None] | None = None,
    pickler: Callable[..., bytes] = like_python_2,
) -> dict[str, str]:
    """Write an archive, some members replaced or (None) left out; returns the settings that use it."""
    members = {name: pickler(make_batch(number)) for number, name in enumerate(NAMES)}
    members["cifar-10-batches-py/batches.meta"] = b"not read"
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        for name, content in (members | (replaced or {})).items():
            if content is not None:
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return settings_for(path)


def settings_for(path: Path) -> dict[str, str]:
    return {"archive": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


@pytest.mark.parametrize("pickler", [like_python_2, like_python_3])
def test_the_official_layout_is_read(tmp_path: Path, pickler: Callable[..., bytes]) -> None:
    settings = make_archive(tmp_path / "archive.tar.gz", pickler=pickler)
    dataset = prepare("cifar10", tmp_path / "cifar10", settings)
    assert (dataset.image_shape, dataset.classes) == ((32, 32, 3), 10)
    assert (len(dataset.train_labels), len(dataset.test_labels)) == (5 * SAMPLES, SAMPLES)
    second = make_batch(1)
    assert dataset.train_labels[SAMPLES : 2 * SAMPLES].tolist() == second[b"labels"]
    assert dataset.test_labels.tolist() == make_batch(5)[b"labels"]


def test_a_row_is_red_then_green_then_blue_each_row_by_row(tmp_path: Path) -> None:
    settings = make_archive(tmp_path / "archive.tar.gz")
    dataset = prepare("cifar10", tmp_path / "cifar10", settings)
    row = make_batch(0)[b"data"][3]
    for channel in range(3):
        plane = row[1024 * channel : 1024 * (channel + 1)].reshape(32, 32)
        np.testing.assert_array_equal(dataset.train_images[3, :, :, channel], plane)


class _Malicious:
    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._marker),)


def test_a_malicious_pickle_is_refused_and_not_run(tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    batch = pickle.dumps(make_batch(0) | {b"labels": _Malicious(marker)})
    settings = make_archive(tmp_path / "archive.tar.gz", {NAMES[2]: batch})
    with pytest.raises(DataError, match=r"data_batch_3 is no batch .* it asks for posix\.mkdir"):
        prepare("cifar10", tmp_path / "cifar10", settings)
    assert not marker.exists()


def test_bytes_are_decoded_as_latin_1_alone(tmp_path: Path) -> None:
    batch = b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00bz2\x86R."
    settings = make_archive(tmp_path / "archive.tar.gz", {NAMES[0]: batch})
    with pytest.raises(DataError, match="bytes in encoding 'bz2'"):
        prepare("cifar10", tmp_path / "cifar10", settings)


def test_an_array_in_fortran_order_is_read_too(tmp_path: Path) -> None:
    batch = make_batch(0)
    swapped = like_python_2(batch | {b"data": np.asfortranarray(batch[b"data"])})
    plain = prepare("cifar10", tmp_path / "plain", make_archive(tmp_path / "plain.tar.gz"))
    settings = make_archive(tmp_path / "swapped.tar.gz", {NAMES[0]: swapped})
    dataset = prepare("cifar10", tmp_path / "swapped", settings)
    np.testing.assert_array_equal(dataset.train_images, plain.train_images)


def test_a_crafted_array_never_reaches_numpy() -> None:
    # Pixels that claim to be object references: NumPy would follow them.
    batch = like_python_2({b"data": np.zeros((1, 3072), np.uint8)})
    crafted = pickled.load(batch.replace(b"\x02\x00\x00\x00u1", b"\x02\x00\x00\x00O8"))
    assert type(crafted[b"data"]) is pickled.PickledArray
    with pytest.raises(ValueError, match="another type than uint8"):
        crafted[b"data"].bytes_array()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no pickle",
        like_python_2(make_batch(0))[:-20],
        b"\x80\x02cnumpy\nndarray\n.",
        like_python_2([1, 2, 3]),
        like_python_2({b"labels": [0]}),
        like_python_2({b"data": np.zeros((1, 3072)), b"labels": [0]}),
        like_python_2({b"data": np.zeros((1, 3071), np.uint8), b"labels": [0]}),
        like_python_2({b"data": np.zeros((0, 3072), np.uint8), b"labels": []}),
        like_python_2({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0]}),
        like_python_2({b"data": np.zeros((1, 3072), np.uint8), b"labels": 1}),
        like_python_2({b"data": np.zeros((1, 3072), np.uint8), b"labels": [10]}),
        like_python_2({b"data": np.zeros((1, 3072), np.uint8), b"labels": ["cat"]}),
    ],
)
def test_a_batch_that_is_none_is_named(tmp_path: Path, content: bytes) -> None:
    settings = make_archive(tmp_path / "archive.tar.gz", {cifar10.TEST_BATCH: content})
    with pytest.raises(DataError, match=r"archive\.tar\.gz: cifar-10-batches-py/test_batch"):
        prepare("cifar10", tmp_path / "cifar10", settings)
    assert not (tmp_path / "cifar10").exists()


def test_a_missing_batch_is_named(tmp_path: Path) -> None:
    settings = make_archive(tmp_path / "archive.tar.gz", {NAMES[4]: None})
    with pytest.raises(
        DataError, match="lacks cifar-10-batches-py/data_batch_5; get it from https"
    ):
        prepare("cifar10", tmp_path / "cifar10", settings)


def test_a_batch_that_is_a_link_counts_as_missing(tmp_path: Path) -> None:
    path = tmp_path / "archive.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        member = tarfile.TarInfo(NAMES[0])
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(member)
    with pytest.raises(DataError, match="data_batch_1"):
        prepare("cifar10", tmp_path / "cifar10", settings_for(path))


@pytest.mark.parametrize("kept", [0, 10, 1000, 30_000])
def test_a_truncated_archive_is_refused(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "archive.tar.gz"
    make_archive(path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DataError, match=r"the archive is damaged: .*; fetch it again"):
        prepare("cifar10", tmp_path / "cifar10", settings_for(path))


def test_an_archive_must_be_the_official_one_unless_told_otherwise(tmp_path: Path) -> None:
    settings = make_archive(tmp_path / "archive.tar.gz")
    with pytest.raises(DataError, match=f"SHA-256 is {settings['sha256']}, expected 6d958be0"):
        prepare("cifar10", tmp_path / "cifar10", {"archive": settings["archive"]})


def test_a_missing_archive_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere: .*set datasets\.cifar10\.archive to a copy of"):
        prepare("cifar10", tmp_path, {"archive": str(tmp_path / "nowhere")})


@pytest.mark.parametrize("settings", [{"archive": 1}, {"sha256": None}, {"verify": False}])
def test_an_impossible_setting_is_named(tmp_path: Path, settings: dict[str, object]) -> None:
    with pytest.raises(DataError, match=rf"^datasets\.cifar10: .*{next(iter(settings))}"):
        prepare("cifar10", tmp_path, settings)


def test_without_a_path_the_archive_is_downloaded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source.tar.gz"
    settings = {"sha256": make_archive(source)["sha256"]}
    monkeypatch.setattr(cifar10, "URL", source.as_uri())
    prepare("cifar10", tmp_path / "cifar10", settings)
    source.unlink()
    dataset = prepare("cifar10", tmp_path / "cifar10", settings)
    assert len(dataset.test_labels) == SAMPLES


def test_a_download_with_another_checksum_is_not_kept(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "folder" / "target"
    source.write_bytes(b"an error page")
    with pytest.raises(
        DataError, match=r"the downloaded file has SHA-256 .* set the setting to its path"
    ):
        archives.download(source.as_uri(), target, "0" * 64, setting="the setting")
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "reason"),
    [("file:///nowhere", "No such file"), ("http://127.0.0.1:9/archive", "Connection refused")],
)
def test_a_failed_download_names_url_reason_and_remedy(
    tmp_path: Path, url: str, reason: str
) -> None:
    with pytest.raises(
        DataError, match=f"^{url} cannot .*{reason}.*; fetch it elsewhere and set the"
    ):
        archives.download(url, tmp_path / "target", "0" * 64, setting="the setting")
    assert list(tmp_path.iterdir()) == []

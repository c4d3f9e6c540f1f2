"""The dataset `text`: windows of bytes or tokens, and the token that follows each."""

from __future__ import annotations
import __future__

import json
from pathlib import Path

import numpy as np
import pytest

from ckptbench.common.errors import DataError
from ckptbench.inputs.datasets.sources import changes, prepare
from ckptbench.inputs.datasets.sources.text import Text


def written(folder: Path, content: bytes, name: str = "text.txt") -> str:
    path = folder / name
    path.write_bytes(content)
    return str(path)


def test_a_label_is_the_byte_that_follows(tmp_path: Path) -> None:
    path = written(tmp_path, bytes(range(100)))
    dataset = prepare("text", tmp_path / "made", {"path": path, "length": 8})
    assert (dataset.sample_shape, dataset.classes) == ((8,), 256)
    tokens, labels = dataset.batch("train", range(11))
    assert tokens.dtype == labels.dtype == np.int64
    np.testing.assert_array_equal(tokens.ravel(), np.arange(88))
    np.testing.assert_array_equal(labels, tokens + 1)


def test_the_last_tenth_is_the_test_set_and_no_sample_of_both(tmp_path: Path) -> None:
    path = written(tmp_path, bytes(range(200)))
    dataset = prepare("text", tmp_path / "made", {"path": path, "length": 4})
    train, test = (dataset.batch(split, range(n)) for split, n in (("train", 44), ("test", 4)))
    assert (len(dataset.train_labels), len(dataset.test_labels)) == (44, 4)
    assert train[1].max() < 180 <= test[0].min()


def test_tokens_of_nanogpt_are_read_as_they_are(tmp_path: Path) -> None:
    tokens = np.arange(50_157, 50_257, dtype=np.uint16)
    path = written(tmp_path, tokens.tobytes(), "train.bin")
    dataset = prepare("text", tmp_path / "made", {"path": path, "length": 3})
    assert dataset.classes == 50_257
    np.testing.assert_array_equal(dataset.batch("train", [1])[1][0], tokens[4:7])


def test_without_a_path_it_is_the_source_of_python(tmp_path: Path) -> None:
    dataset = prepare("text", tmp_path / "made", {"length": 32})
    tokens, _ = dataset.batch("train", [0, 1])
    assert len(dataset.train_labels) > 100_000
    first = Path(__future__.__file__).read_bytes()
    assert first.startswith(tokens.astype(np.uint8).tobytes())
    assert "Python 3" in json.loads((tmp_path / "made/dataset.json").read_text())["source"]


@pytest.mark.parametrize(
    ("content", "name", "words"),
    [
        (b"too short", "a.txt", r"a.txt: 9 tokens are too few for sequences of datasets.text.length = 8: use at least 90 tokens, or shorter"),
        (b"odd", "a.bin", r"a.bin: 3 bytes are no tokens of 16 bits: give the path of a text, or of tokens"),
        (b"", "a.bin", r"a.bin: 0 bytes are no tokens of 16 bits"),
    ],
)  # fmt: skip
def test_a_file_that_does_not_serve_is_refused(
    tmp_path: Path, content: bytes, name: str, words: str
) -> None:
    with pytest.raises(DataError, match=words):
        prepare("text", tmp_path / "made", {"path": written(tmp_path, content, name), "length": 8})
    assert not (tmp_path / "made" / "dataset.json").exists()


def test_a_missing_file_is_told_before_anything_runs(tmp_path: Path) -> None:
    setting, words = Text(path=str(tmp_path / "none.txt")).missing(is_made=False) or ("", "")
    assert setting == "path"
    assert "none.txt: give the path of a text" in words


def test_another_content_or_length_makes_it_again(tmp_path: Path) -> None:
    path = written(tmp_path, bytes(100))
    prepare("text", tmp_path / "made", {"path": path, "length": 8})
    assert changes(tmp_path / "made", Text(path=path, length=8)) == []
    assert changes(tmp_path / "made", Text(path=path, length=4)) == ["length"]
    written(tmp_path, bytes(101))
    assert changes(tmp_path / "made", Text(path=path, length=8)) == ["sha256"]

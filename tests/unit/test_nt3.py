"""NT3's gene expressions from files of the official layout, and the files that are not what they claim to be."""

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ckptbench.data.sources import nt3, prepare
from ckptbench.errors import DataError

VALUES = 7
SAMPLES = {"train": 6, "test": 4}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nt3, "VALUES", VALUES)
    monkeypatch.setattr(nt3, "SAMPLES", SAMPLES)


def table(split: str) -> np.ndarray:
    """Classes and values of a file. The third column of values is zero, the fourth nearly so, the fifth negative."""
    random = np.random.default_rng(len(split))
    values = random.random((SAMPLES[split], VALUES)) * [1, 300, 0, 1e-7, -2, 5e4, 1]
    return np.column_stack([np.arange(SAMPLES[split]) % 2, values])


def write(folder: Path, **changed: list[str]) -> dict[str, str]:
    """Write both files, one of them perhaps `changed`; returns the settings that use them."""
    folder.mkdir(exist_ok=True)
    for split, name in nt3.FILES.items():
        lines = changed.get(split, lines_of(split))
        (folder / name).write_text("".join(line + "\n" for line in lines), encoding="latin-1")
    return {"folder": str(folder)}


def lines_of(split: str) -> list[str]:
    return [f"{row[0]:.0f}," + ",".join(map(repr, row[1:].tolist())) for row in table(split)]


def test_columns_are_scaled_by_their_largest_magnitude_in_both_files(tmp_path: Path) -> None:
    dataset = prepare("nt3", tmp_path / "nt3", write(tmp_path / "files"))
    assert (dataset.image_shape, dataset.classes) == ((VALUES, 1, 1), 2)
    both = np.concatenate([table("train"), table("test")])[:, 1:].astype(np.float32)
    largest = np.abs(both).max(axis=0)
    largest[2:4] = 1
    for split, first in (("train", 0), ("test", 6)):
        images, labels = dataset.batch(split, range(SAMPLES[split]))  # type: ignore[arg-type]
        assert images.dtype == np.float32
        np.testing.assert_array_equal(labels, table(split)[:, 0])
        wanted = (both / largest)[first : first + SAMPLES[split]]
        np.testing.assert_array_equal(images[:, :, 0, 0], wanted)


def test_blank_lines_and_line_ends_of_windows_change_nothing(tmp_path: Path) -> None:
    plain = prepare("nt3", tmp_path / "plain", write(tmp_path / "files"))
    train = [line + "\r" for line in lines_of("train")]
    other = prepare("nt3", tmp_path / "other", write(tmp_path / "files", train=[*train, "", " "]))
    np.testing.assert_array_equal(plain.train_images, other.train_images)


def _with(column: int, text: str) -> Callable[[list[str]], list[str]]:
    """A change of one column, from 1, of the third line."""

    def changed(lines: list[str]) -> list[str]:
        columns = lines[2].split(",")
        columns[column - 1] = text
        return [*lines[:2], ",".join(columns), *lines[3:]]

    return changed


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda lines: lines[:-1], "it is cut short: it has 3 samples, expected 4"),
        (lambda lines: [], "it is cut short: it has 0 samples, expected 4"),
        (lambda lines: [*lines, lines[0]], "it has more than 4 samples"),
        (
            lambda lines: [*lines[:-1], lines[-1].rpartition(",")[0]],
            "line 4 has 7 columns, expected 8: the class and 7 values",
        ),
        (lambda lines: [line + ",1" for line in lines], "line 1 has 9 columns, expected 8"),
        (
            lambda lines: ["class,a,b,c,d,e,f,g", *lines],
            "line 1, column 1 is 'class', not a number",
        ),
        (lambda lines: ["\x1f\x8b\x08 compressed"], "line 1 has 1 columns, expected 8"),
        (_with(4, "many"), "line 3, column 4 is 'many', not a number"),
        (_with(4, ""), "line 3, column 4 is '', not a number"),
        (_with(8, "1.5.2"), "line 3, column 8 is '1.5.2', not a number"),
        (_with(4, "nan"), "line 3, column 4 is nan, not a finite number in float32"),
        (_with(1, "inf"), "line 3, column 1 is inf, not a finite number in float32"),
        (_with(4, "1e39"), r"line 3, column 4 is 1e\+39, not a finite number in float32"),
        (_with(1, "2"), "line 3 begins with 2, expected the class, 0 or 1"),
        (_with(1, "0.5"), "line 3 begins with 0.5, expected the class, 0 or 1"),
    ],
)
def test_a_file_that_is_not_the_official_one_is_one_line_with_place_and_remedy(
    tmp_path: Path, change: Callable[[list[str]], list[str]], fault: str
) -> None:
    settings = write(tmp_path / "files", test=change(lines_of("test")))
    with pytest.raises(DataError) as caught:
        prepare("nt3", tmp_path / "nt3", settings)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}/files/nt_test2.csv: ")
    assert message.endswith(f"; download it from {nt3.URL} and set {nt3.SETTING} to its folder")
    assert "\n" not in message
    caught.match(fault)
    assert not (tmp_path / "nt3").exists()


def test_a_missing_file_and_one_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    settings = write(tmp_path / "files")
    path = tmp_path / "files" / "nt_train2.csv"
    path.unlink()
    with pytest.raises(DataError, match=f"^{path}: it cannot be read: No such file .*; download"):
        prepare("nt3", tmp_path / "nt3", settings)
    path.mkdir()
    with pytest.raises(DataError, match=f"^{path}: it cannot be read: Is a directory; download"):
        prepare("nt3", tmp_path / "nt3", settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "folder is not set: download nt_train2.csv and nt_test2.csv from http"),
        ({"folder": 1}, "folder is 1: use a path"),
        ({"file": "nt_train2.csv"}, "unknown setting 'file': use folder"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, settings: dict[str, object], words: str) -> None:
    with pytest.raises(DataError, match=rf"^datasets\.nt3: {words}"):
        prepare("nt3", tmp_path, settings)


def test_reading_needs_little_more_memory_than_the_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, samples = 20_000, {"train": 60, "test": 20}
    monkeypatch.setattr(nt3, "VALUES", values)
    monkeypatch.setattr(nt3, "SAMPLES", samples)
    line = "1," + ",".join(["0.123456"] * values)
    settings = write(tmp_path / "files", **{split: [line] * n for split, n in samples.items()})
    tracemalloc.start()
    try:
        prepare("nt3", tmp_path / "nt3", settings)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    held = 4 * values * sum(samples.values())
    text = sum(os.path.getsize(tmp_path / "files" / name) for name in nt3.FILES.values())
    assert peak < 1.5 * held < text

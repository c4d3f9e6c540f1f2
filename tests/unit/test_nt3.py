"""NT3's gene expressions from files of the official layout, and the files that are not what they claim to be."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ckptbench.common.errors import DataError
from ckptbench.data.sources import nt3, prepare

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
        (folder / name).write_text("".join(line + "\n" for line in lines))
    return {"folder": str(folder)}


def lines_of(split: str) -> list[str]:
    return [f"{row[0]:.0f}," + ",".join(map(repr, row[1:].tolist())) for row in table(split)]


def test_columns_are_scaled_by_their_largest_magnitude_in_both_files(tmp_path: Path) -> None:
    dataset = prepare("nt3", tmp_path / "nt3", write(tmp_path / "files"))
    assert (dataset.sample_shape, dataset.classes) == ((VALUES, 1, 1), 2)
    both = np.concatenate([table("train"), table("test")])[:, 1:].astype(np.float32)
    largest = np.abs(both).max(axis=0)
    largest[2:4] = 1
    for split, first in (("train", 0), ("test", 6)):
        images, labels = dataset.batch(split, range(SAMPLES[split]))  # type: ignore[arg-type]
        assert images.dtype == np.float32
        np.testing.assert_array_equal(labels, table(split)[:, 0])
        wanted = (both / largest)[first : first + SAMPLES[split]]
        np.testing.assert_array_equal(images[:, :, 0, 0], wanted)


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
        (lambda lines: lines[:-1], "3 lines of 8 columns, expected 4 of 8"),
        (lambda lines: [line + ",1" for line in lines], "4 lines of 9 columns, expected 4 of 8"),
        (lambda lines: ["class,a,b,c,d,e,f,g", *lines], "could not convert string 'class'"),
        (_with(4, "many"), "could not convert string 'many' to float32 at row 2, column 4"),
        (_with(4, "nan"), "line 3, column 4 is not a finite number in float32"),
        (_with(4, "1e39"), "line 3, column 4 is not a finite number in float32"),
        (_with(1, "2"), "line 3 begins with 2, expected the class, 0 or 1"),
    ],
)
def test_a_file_that_is_not_the_official_one_is_one_line_with_place_and_remedy(
    tmp_path: Path, change: Callable[[list[str]], list[str]], fault: str
) -> None:
    settings = write(tmp_path / "files", test=change(lines_of("test")))
    with pytest.raises(DataError) as caught:
        prepare("nt3", tmp_path / "nt3", settings)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}/files/nt_test2.csv: {fault}")
    assert message.endswith(f"; {nt3.REMEDY}")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    settings = write(tmp_path / "files")
    (tmp_path / "files" / "nt_test2.csv").unlink()
    with pytest.raises(DataError, match=r"nt_test2\.csv.* not found.*; download"):
        prepare("nt3", tmp_path / "nt3", settings)

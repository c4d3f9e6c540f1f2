"""Datasets prepared for real, in the environment that the study uses; digits by the study's verb."""

import os
import subprocess
from pathlib import Path

from ckptbench.inputs.datasets.dataset import Dataset

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".environments" / "data" / "bin" / "python"


def prepare_digits(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [
            str(PYTHON),
            "-m",
            "ckptbench.workflow",
            "prepare-dataset",
            "digits",
            str(folder),
            *options,
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_digits_are_prepared_the_same_every_time(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "digits.log"
    first = prepare_digits(tmp_path / "first", "--log", str(log))
    assert first.returncode == 0, first.stderr
    assert log.read_text() == first.stderr
    assert prepare_digits(tmp_path / "again").returncode == 0
    description = (tmp_path / "first" / "dataset.json").read_bytes()
    assert (tmp_path / "again" / "dataset.json").read_bytes() == description

    dataset = Dataset.open(tmp_path / "first")
    assert (dataset.sample_shape, dataset.classes) == ((32, 32, 3), 10)
    assert (len(dataset.train_labels), len(dataset.test_labels)) == (1437, 360)
    assert set(dataset.train_labels) == set(dataset.test_labels) == set(range(10))
    assert dataset.train_images.max() == 255


def test_a_wrong_setting_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    failed = prepare_digits(tmp_path / "digits", "--settings", '{"size": 64}')
    assert failed.returncode == 1
    assert failed.stderr.startswith("DataError: datasets.digits: ")
    assert failed.stderr.endswith("unexpected keyword argument 'size'\n")

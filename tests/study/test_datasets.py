"""Datasets prepared for real, in the environment that the study uses; digits by the study's script."""

import os
import subprocess
from pathlib import Path

import numpy as np

from ckptbench.data.dataset import Dataset

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".environments" / "data" / "bin" / "python"


def prepare_digits(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(PYTHON), str(ROOT / "scripts/prepare_dataset.py"), "digits", str(folder), *options],
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


SCALED = """
import sys
import numpy as np
from sklearn.preprocessing import MaxAbsScaler
from ckptbench.data.sources import nt3, prepare

nt3.VALUES, nt3.SAMPLES = 40, {"train": 9, "test": 5}
random, folder = np.random.default_rng(0), sys.argv[1]
tables = {}
for split, name in nt3.FILES.items():
    values = random.standard_normal((nt3.SAMPLES[split], 40)) * np.logspace(-9, 6, 40)
    values[:, 7] = 0
    tables[split] = np.column_stack([np.arange(len(values)) % 2, values])
    np.savetxt(f"{folder}/{name}", tables[split], delimiter=",")
prepare("nt3", nt3.Path(folder), {"folder": folder})
both = np.concatenate([tables["train"], tables["test"]]).astype("float32")[:, 1:]
np.save(f"{folder}/wanted.npy", MaxAbsScaler().fit_transform(both))
"""
"""What CANDLE's `load_data` does with the columns of both files, beside what `prepare` makes of them."""


def test_nt3_is_scaled_bit_for_bit_as_by_scikit_learn(tmp_path: Path) -> None:
    subprocess.run(
        [str(PYTHON), "-c", SCALED, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        check=True,
        timeout=600,
    )
    wanted = np.load(tmp_path / "wanted.npy")
    dataset = Dataset.open(tmp_path)
    found = np.concatenate([dataset.train_images, dataset.test_images])
    assert found.reshape(wanted.shape).tobytes() == wanted.tobytes()
    assert wanted.dtype == np.float32

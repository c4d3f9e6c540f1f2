"""Dangers of engines, each provoked for real: what happens to the files, and what the probe says of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.study.probed_training import (
    plain,
    probed,
    warm,
)

pytestmark = pytest.mark.frameworks("trainers")
PROVOKING = str(Path(__file__).with_name("probe_dangers.py"))
NONE_LEFT = "2 times the last whole checkpoint was removed before the next was written: meanwhile the disk had none"
COPIED = "3 files were moved from another device (/dev/shm)"


def test_lightning_that_keeps_one_checkpoint_in_the_foreground_is_safe_on_one_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the test below."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    training = probed(tmp_path / "run", warm("trainers", "run"), PROVOKING, "lightning")
    assert len(training.summary["checkpoints"]) == 3
    assert "were moved from another device" not in training.told
    assert "meanwhile the disk had none" not in training.told
    assert "no sync was seen" in training.told


def test_lightning_with_asynchronous_io_and_its_temporary_files_elsewhere_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps one checkpoint, and removes it before the thread has written the next."""
    assert os.stat("/dev/shm").st_dev != os.stat(tmp_path).st_dev
    monkeypatch.setenv("TMPDIR", "/dev/shm")
    training = probed(tmp_path / "run", warm("trainers", "run"), PROVOKING, "lightning_async")
    assert NONE_LEFT in training.told
    assert COPIED in training.told


def test_a_save_of_lightning_that_fails_in_its_thread_is_not_finished(tmp_path: Path) -> None:
    """Lightning says so at the next one, which it has handed on by then."""
    training = probed(tmp_path, warm("trainers", "run"), PROVOKING, "lightning_fails", code=1)
    assert [one["failed"] for one in training.summary["checkpoints"]][:2] == [False, True]
    assert "checkpoints failed (epoch=0-step=20.ckpt" in training.told


def test_trainer_takes_a_half_written_folder_for_its_last_checkpoint_and_is_warned_of(
    tmp_path: Path,
) -> None:
    training = probed(tmp_path, warm("trainers", "run"), PROVOKING, "trainer_killed", code=-9)
    half = tmp_path / "checkpoints" / "checkpoint-20"
    assert (half / "model.safetensors").exists()
    assert not (half / "trainer_state.json").exists()
    last = plain(tmp_path, warm("trainers", "plain"), PROVOKING, "last_checkpoint")
    assert last.strip() == "checkpoints/checkpoint-20"
    assert f"{half} is half written (the training was killed during the save)" in training.told
    assert training.summary["updates"] == 20

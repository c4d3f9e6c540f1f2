"""What an evaluation counts: samples of images, and every token of a text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from numpy_framework import NumpyFramework

from ckptbench.inputs.datasets.dataset import Dataset, Inputs
from ckptbench.inputs.datasets.sources import prepare
from ckptbench.training import evaluation
from ckptbench.training.evaluation import evaluate

LENGTH, VOCABULARY = 8, 256


class Successor(NumpyFramework):
    """Predicts for every token the next number, with a chance that is known."""

    sizes: list[int]

    def predict(self, inputs: Inputs) -> NDArray[np.float32]:
        self.sizes.append(len(inputs))
        logits = np.zeros((*inputs.shape, VOCABULARY), np.float32)
        np.put_along_axis(logits, (inputs[..., np.newaxis] + 1) % VOCABULARY, CERTAIN, axis=-1)
        return logits


CERTAIN = 3.0
LOSS = float(np.log(np.exp(CERTAIN) + VOCABULARY - 1)) - CERTAIN
"""Of a prediction that is right."""


@pytest.fixture
def text(tmp_path: Path) -> Dataset:
    """Bytes that count up, but for one in the test set."""
    content = bytearray(range(200))
    content[190] = 0
    (tmp_path / "text").write_bytes(bytes(content))
    return prepare("text", tmp_path / "made", {"path": str(tmp_path / "text"), "length": LENGTH})


def evaluated(text: Dataset) -> tuple[evaluation.Evaluation, list[int]]:
    framework = Successor()
    framework.sizes = []
    return evaluate(framework, text, range(len(text.test_labels)), epoch=3), framework.sizes


def test_every_token_counts(text: Dataset) -> None:
    """The wrong one is predicted, and predicted from."""
    found, sizes = evaluated(text)
    assert (found.samples, found.correct) == (2 * LENGTH, 2 * LENGTH - 2)
    assert found.loss_sum == pytest.approx(2 * LENGTH * LOSS + 2 * CERTAIN)
    assert sizes == [2]


def test_few_logits_are_in_memory_at_once(text: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = evaluated(text)
    monkeypatch.setattr(evaluation, "MOST_LOGITS", LENGTH * VOCABULARY)
    found, sizes = evaluated(text)
    assert sizes == [1, 1]
    assert (found.loss_sum, found.correct) == (pytest.approx(whole.loss_sum), whole.correct)

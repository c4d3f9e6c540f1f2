"""The test loss and accuracy of one rank's shard of the test set."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ckptbench.common.clock import clock
from ckptbench.frameworks.contract import Framework
from ckptbench.inputs.datasets.dataset import Dataset
from ckptbench.run.events import Evaluation

EVALUATION_BATCH = 64
"""Most samples whose logits are computed at once."""
MOST_LOGITS = 1 << 24
"""Most of these logits: those of GPT-2 are 51 million a sample of 1,024 tokens."""


def evaluate(framework: Framework, dataset: Dataset, shard: range, epoch: int) -> Evaluation:
    """Evaluate the test samples of `shard`. The event is of the end of this epoch. Of tokens each one counts."""
    start_ns = clock()
    loss_sum, correct, counted = 0.0, 0, 0
    batch = _samples_at_once(dataset)
    for first in range(shard.start, shard.stop, batch):
        indices = np.arange(first, min(first + batch, shard.stop))
        inputs, labels = dataset.batch("test", indices)
        predicted = framework.predict(inputs)
        logits = predicted.reshape(-1, predicted.shape[-1]).astype(np.float64)
        labels = labels.reshape(-1)
        loss_sum += cross_entropy_sum(logits, labels)
        correct += int((logits.argmax(axis=1) == labels).sum())
        counted += len(labels)
    return Evaluation(
        epoch=epoch,
        start_ns=start_ns,
        end_ns=clock(),
        samples=counted,
        loss_sum=loss_sum,
        correct=correct,
    )


def predict_as_often(framework: Framework, dataset: Dataset, own: int, longest: int) -> None:
    """Predict a sample for each batch that the rank with the most samples has beyond this rank, whose own number is `own`.

    A framework whose ranks hold shards gathers them at every prediction.
    """
    batch = _samples_at_once(dataset)
    for _ in range(-(-longest // batch) - -(-own // batch)):
        framework.predict(dataset.batch("test", np.arange(1))[0])


def _samples_at_once(dataset: Dataset) -> int:
    of_a_sample = dataset.classes * dataset.test_labels[:1].size
    return max(1, min(EVALUATION_BATCH, MOST_LOGITS // of_a_sample))


def cross_entropy_sum(logits: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """Sum over samples of -log softmax(logits)[label]; logits (n, classes), labels (n,)."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_sums = np.log(np.exp(shifted).sum(axis=1))
    return float((log_sums - shifted[np.arange(len(labels)), labels]).sum())

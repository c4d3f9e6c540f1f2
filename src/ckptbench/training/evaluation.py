"""The test loss and accuracy of one rank's shard of the test set."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ckptbench.common.clock import clock
from ckptbench.data.dataset import Dataset
from ckptbench.frameworks.contract import Framework
from ckptbench.runs.events import Evaluation

EVALUATION_BATCH = 64


def evaluate(framework: Framework, dataset: Dataset, shard: range, epoch: int) -> Evaluation:
    """Evaluate the test samples of `shard`. The event is of the end of this epoch."""
    start_ns = clock()
    loss_sum, correct = 0.0, 0
    for first in range(shard.start, shard.stop, EVALUATION_BATCH):
        indices = np.arange(first, min(first + EVALUATION_BATCH, shard.stop))
        images, labels = dataset.batch("test", indices)
        logits = framework.predict(images).astype(np.float64)
        loss_sum += cross_entropy_sum(logits, labels)
        correct += int((logits.argmax(axis=1) == labels).sum())
    return Evaluation(
        epoch=epoch,
        start_ns=start_ns,
        end_ns=clock(),
        samples=len(shard),
        loss_sum=loss_sum,
        correct=correct,
    )


def cross_entropy_sum(logits: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """Sum over samples of -log softmax(logits)[label]; logits (n, classes), labels (n,)."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_sums = np.log(np.exp(shifted).sum(axis=1))
    return float((log_sums - shifted[np.arange(len(labels)), labels]).sum())

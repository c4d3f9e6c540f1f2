"""The test loss and accuracy of one rank's shard of the test set."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

EVALUATION_BATCH = 64


def cross_entropy_sum(logits: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """Sum over samples of -log softmax(logits)[label]; logits (n, classes), labels (n,)."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_sums = np.log(np.exp(shifted).sum(axis=1))
    return float((log_sums - shifted[np.arange(len(labels)), labels]).sum())

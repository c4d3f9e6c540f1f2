"""Bit-exact digest of the weights: trainings that print the same digest have identical weights."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np


def digest(weights: Iterable[Any]) -> str:
    """Digest of array-likes, in their order."""
    found = hashlib.sha256()
    for weight in weights:
        found.update(np.ascontiguousarray(weight).tobytes())
    return found.hexdigest()

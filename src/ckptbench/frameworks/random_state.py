"""The states of the random generators that all frameworks share, as arrays: Python's and NumPy's global generators.

The arrays' names begin with `random/`. Those of a framework's own generators in `Framework.local_state` do so too.
"""

from __future__ import annotations

import random

import numpy as np

from ckptbench.frameworks.contract import Arrays


def seed_all(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)


def random_state() -> Arrays:
    """Both states, without pickle. Each is 624 or 625 words and a cached draw from the normal distribution."""
    version, words, cached = random.getstate()
    _, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    return {
        "random/python/words": np.asarray(words, np.uint64),
        "random/python/version": np.asarray(version, np.int64),
        "random/python/cached": np.asarray(np.nan if cached is None else cached, np.float64),
        "random/numpy/keys": np.asarray(keys, np.uint32),
        "random/numpy/position": np.asarray([position, has_gauss], np.int64),
        "random/numpy/gauss": np.asarray(gauss, np.float64),
    }


def load_random_state(state: Arrays) -> None:
    cached = float(state["random/python/cached"])
    words = tuple(int(word) for word in state["random/python/words"])
    random.setstate(
        (int(state["random/python/version"]), words, None if np.isnan(cached) else cached)
    )
    position, has_gauss = (int(number) for number in state["random/numpy/position"])
    np.random.set_state(
        (
            "MT19937",
            state["random/numpy/keys"].astype(np.uint32),
            position,
            has_gauss,
            float(state["random/numpy/gauss"]),
        )
    )

"""The random generators that every framework shares, as arrays: Python's and NumPy's global ones."""

from __future__ import annotations

import random

import numpy as np

from ckptbench.frameworks.base import Arrays


def seed_all(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)


def random_state() -> Arrays:
    """Both states, without pickle: a state of each is 624 or 625 words and a cached normal draw."""
    version, words, cached = random.getstate()
    _, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    return {
        "python/words": np.asarray(words, np.uint64),
        "python/version": np.asarray(version, np.int64),
        "python/cached": np.asarray(np.nan if cached is None else cached, np.float64),
        "numpy/keys": np.asarray(keys, np.uint32),
        "numpy/position": np.asarray([position, has_gauss], np.int64),
        "numpy/gauss": np.asarray(gauss, np.float64),
    }


def load_random_state(state: Arrays) -> None:
    cached = float(state["python/cached"])
    words = tuple(int(word) for word in state["python/words"])
    random.setstate((int(state["python/version"]), words, None if np.isnan(cached) else cached))
    position, has_gauss = (int(number) for number in state["numpy/position"])
    np.random.set_state(
        (
            "MT19937",
            state["numpy/keys"].astype(np.uint32),
            position,
            has_gauss,
            float(state["numpy/gauss"]),
        )
    )

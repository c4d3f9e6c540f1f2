"""Handwritten digits: real images that need no download, because scikit-learn contains them.

The 1,797 images of 8x8 pixels in 10 classes are the test set of the UCI dataset "Optical Recognition of Handwritten
Digits" (Alpaydin and Kaynak 1998). Every pixel is repeated 4x4 times and over three channels, so that a network for
32x32 colour images takes them. Training and test samples are chosen by a seeded permutation, not stratified.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ckptbench.common.errors import DataError
from ckptbench.inputs.datasets.sources.source import Content, Source

TRAIN_SAMPLES = 1437
SPLIT_SEED = 0
PIXEL_REPEATS = 4
CHANNELS = 3


@dataclass(frozen=True, kw_only=True)
class Digits(Source):
    """1,437 training and 360 test images from scikit-learn, enlarged to 32 × 32 × 3. It has no settings."""

    name = "digits"
    train_samples = TRAIN_SAMPLES
    sample_shape = (32, 32, CHANNELS)
    classes = 10

    def content(self, folder: Path) -> Content:
        """Raises DataError if scikit-learn is not installed."""
        try:
            import sklearn
            from sklearn.datasets import load_digits
        except ImportError as error:
            raise DataError(
                f"digits: {sys.executable} has no scikit-learn, which holds this dataset; prepare it in the "
                "environment that envs/data.txt locks"
            ) from error
        digits = load_digits()
        images, labels = enlarge(digits.images), digits.target.astype(np.int64)
        order = np.random.default_rng(SPLIT_SEED).permutation(len(labels))
        train, test = order[:TRAIN_SAMPLES], order[TRAIN_SAMPLES:]
        return Content(
            source=f"scikit-learn {sklearn.__version__}, sklearn.datasets.load_digits",
            sample_shape=self.sample_shape,
            classes=self.classes,
            samples={"train": len(train), "test": len(test)},
            blocks={
                "train": [(images[train], labels[train])],
                "test": [(images[test], labels[test])],
            },
        )


def enlarge(pixels: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Turn (n, 8, 8) with values 0 to 16 into (n, 32, 32, 3) with values 0 to 255."""
    values = np.rint(pixels * (255 / 16)).astype(np.uint8)
    tall = values.repeat(PIXEL_REPEATS, axis=1)
    return tall.repeat(PIXEL_REPEATS, axis=2)[..., np.newaxis].repeat(CHANNELS, axis=3)

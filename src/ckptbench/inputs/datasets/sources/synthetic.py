"""Generated images of any size and number that a network can learn.

Every class has a coarse random pattern of up to 8x8 cells. An image is the pattern of its class plus uniform noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckptbench.inputs.datasets.dataset import Split
from ckptbench.inputs.datasets.sources.source import Block, Content, Source

CELLS = 8
BLOCK_BYTES = 32 * 2**20
MOST_PIXELS = 65_536
"""Of a height or a width. NT3 has 60,483 rows."""
MOST_IMAGE_BYTES = 2**28
MOST_SAMPLES = 10**9
# Pattern and noise are both below LEVELS, so that their sum fits into a byte.
LEVELS = 128

# First word of each generator's seed, so that patterns, training and test samples are drawn independently.
_PATTERNS = 0
_STREAMS: Mapping[Split, int] = {"train": 1, "test": 2}


def _whole(default: int, minimum: int, maximum: int, description: str) -> Any:
    """A field that takes whole numbers from `minimum` to `maximum`."""
    bounds = {"ge": minimum, "le": maximum, "strict": True}
    return field(default=default, metadata={"description": description, **bounds})


@dataclass(frozen=True, kw_only=True)
class Synthetic(Source):
    """Images from a seeded generator."""

    name = "synthetic"
    height: int = _whole(32, 1, MOST_PIXELS, "Pixels.")
    width: int = _whole(32, 1, MOST_PIXELS, "Pixels.")
    channels: int = _whole(3, 1, 4096, "`height` · `width` · `channels` is at most 2²⁸.")
    classes: int = _whole(
        10, 2, 100_000, "Each class has one random pattern, to which noise is added."
    )
    train_samples: int = _whole(2048, 1, MOST_SAMPLES, "Size of the training set.")
    test_samples: int = _whole(512, 1, MOST_SAMPLES, "Size of the test set.")
    seed: int = _whole(0, 0, 2**31 - 1, "Seed of patterns and noise.")

    def __post_init__(self) -> None:
        pixels = self.height * self.width * self.channels
        if pixels > MOST_IMAGE_BYTES:
            raise ValueError(
                f"an image of height x width x channels = {pixels} bytes is too large: use at most {MOST_IMAGE_BYTES}"
            )

    @property
    def sample_shape(self) -> tuple[int, int, int]:
        return self.height, self.width, self.channels

    def content(self, folder: Path) -> Content:
        samples: dict[Split, int] = {"train": self.train_samples, "test": self.test_samples}
        return Content(
            source="generated",
            sample_shape=self.sample_shape,
            classes=self.classes,
            samples=samples,
            blocks={split: self._blocks(split, samples[split]) for split in samples},
        )

    def _blocks(self, split: Split, samples: int) -> Iterator[Block]:
        patterns = self._patterns()
        rows, columns = _cells(self.height), _cells(self.width)
        random = np.random.default_rng((_STREAMS[split], self.seed))
        block_samples = max(1, BLOCK_BYTES // int(np.prod(self.sample_shape)))
        for first in range(0, samples, block_samples):
            count = min(block_samples, samples - first)
            labels = random.integers(self.classes, size=count)
            noise = random.integers(LEVELS, size=(count, *self.sample_shape), dtype=np.uint8)
            yield patterns[labels][:, rows][:, :, columns] + noise, labels

    def _patterns(self) -> NDArray[np.uint8]:
        """The pattern of every class, (classes, CELLS, CELLS, channels): small even if the images are large."""
        random = np.random.default_rng((_PATTERNS, self.seed))
        shape = (self.classes, CELLS, CELLS, self.channels)
        return random.integers(LEVELS, size=shape, dtype=np.uint8)


def _cells(pixels: int) -> NDArray[np.int64]:
    """Index of the cell in which each pixel of an axis with `pixels` pixels lies."""
    return np.arange(pixels) * CELLS // pixels

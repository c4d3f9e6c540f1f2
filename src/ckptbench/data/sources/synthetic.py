"""Generated images of any size and number that a network can learn.

Every class has a coarse random pattern of up to 8x8 cells. An image is the pattern of its class plus uniform noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckptbench.data.dataset import Split
from ckptbench.data.sources.settings import parse_settings, require_whole_number
from ckptbench.data.sources.writing import Block, Content

CELLS = 8
BLOCK_BYTES = 32 * 2**20
MOST_PIXELS = 65_536
"""Of a height or a width. NT3 has 60,483 rows."""
MOST_CHANNELS = 4096
MOST_IMAGE_BYTES = 2**28
MOST_CLASSES = 100_000
MOST_SAMPLES = 10**9
# Pattern and noise are both below LEVELS, so that their sum fits into a byte.
LEVELS = 128

# First word of each generator's seed, so that patterns, training and test samples are drawn independently.
_PATTERNS = 0
_STREAMS: Mapping[Split, int] = {"train": 1, "test": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticSettings:
    """Raises ValueError if a number is out of range."""

    height: int = 32
    width: int = 32
    channels: int = 3
    classes: int = 10
    train_samples: int = 2048
    test_samples: int = 512
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("height", "width"):
            require_whole_number(name, getattr(self, name), minimum=1, maximum=MOST_PIXELS)
        require_whole_number("channels", self.channels, minimum=1, maximum=MOST_CHANNELS)
        require_whole_number("classes", self.classes, minimum=2, maximum=MOST_CLASSES)
        for name in ("train_samples", "test_samples"):
            require_whole_number(name, getattr(self, name), minimum=1, maximum=MOST_SAMPLES)
        require_whole_number("seed", self.seed, minimum=0, maximum=2**32 - 1)


def content(folder: Path, settings: Mapping[str, Any]) -> Content:
    chosen = parse_settings(SyntheticSettings, "synthetic", settings)
    samples: dict[Split, int] = {"train": chosen.train_samples, "test": chosen.test_samples}
    return Content(
        source="generated",
        parameters=asdict(chosen),
        image_shape=(chosen.height, chosen.width, chosen.channels),
        classes=chosen.classes,
        samples=samples,
        blocks={split: _blocks(chosen, split, samples[split]) for split in samples},
    )


def _blocks(settings: SyntheticSettings, split: Split, samples: int) -> Iterator[Block]:
    patterns = _patterns(settings)
    rows, columns = _cells(settings.height), _cells(settings.width)
    random = np.random.default_rng((_STREAMS[split], settings.seed))
    image_shape = (settings.height, settings.width, settings.channels)
    block_samples = max(1, BLOCK_BYTES // int(np.prod(image_shape)))
    for first in range(0, samples, block_samples):
        count = min(block_samples, samples - first)
        labels = random.integers(settings.classes, size=count)
        noise = random.integers(LEVELS, size=(count, *image_shape), dtype=np.uint8)
        yield patterns[labels][:, rows][:, :, columns] + noise, labels


def _patterns(settings: SyntheticSettings) -> NDArray[np.uint8]:
    """The pattern of every class, (classes, CELLS, CELLS, channels): small even if the images are large."""
    random = np.random.default_rng((_PATTERNS, settings.seed))
    shape = (settings.classes, CELLS, CELLS, settings.channels)
    return random.integers(LEVELS, size=shape, dtype=np.uint8)


def _cells(pixels: int) -> NDArray[np.int64]:
    """Index of the cell in which each pixel of an axis with `pixels` pixels lies."""
    return np.arange(pixels) * CELLS // pixels

"""What every dataset says of itself: its settings, what is known before it is made, and its samples."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ckptbench.inputs.datasets.dataset import Split

Block = tuple[NDArray[Any], NDArray[Any]]
"""Images (n, height, width, channels) and labels (n,), or tokens (n, length) and the tokens that follow them (n, length)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A dataset ready to be written."""

    source: str
    """Where the samples come from."""
    sample_shape: tuple[int, ...]
    """(height, width, channels); of tokens (length,)."""
    sample_dtype: type[np.uint8] | type[np.float32] | type[np.uint16] = np.uint8
    """uint8 for pixels, which `Dataset.batch` scales; float32 for values that it hands on as they are; uint16 for tokens."""
    classes: int
    samples: Mapping[Split, int]
    blocks: Mapping[Split, Iterable[Block]]
    """May be generators, so that only one block at a time is in memory."""


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """A dataset. Its fields are its settings in the config, under `datasets` and its name.

    A field's metadata are pydantic's arguments of a field, such as `description` and `ge`. `__post_init__` may raise
    ValueError for values that do not go together.
    """

    name: ClassVar[str]
    """Lower-case letters and digits."""
    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    @property
    def train_samples(self) -> int | None:
        """Size of the training set. None if it is not known before the dataset is made."""
        return None

    @property
    def sample_shape(self) -> tuple[int, ...] | None:
        """(height, width, channels); of tokens (length,). None if it is not known before the dataset is made."""
        return None

    @property
    def classes(self) -> int | None:
        """Kinds of labels; of tokens the vocabulary. None if it is not known before the dataset is made."""
        return None

    def missing(self, is_made: bool) -> tuple[str, str] | None:
        """The setting whose files are missing, and the fault with its remedy. `is_made`: the dataset is there already."""
        return None

    def settings(self) -> dict[str, Any]:
        """The settings that have a value, as JSON."""
        return {name: each for name, each in dataclasses.asdict(self).items() if each is not None}

    def identity(self) -> dict[str, Any]:
        """What the samples depend on, as JSON: the dataset is made again when it changes."""
        return self.settings()

    @abstractmethod
    def content(self, folder: Path) -> Content:
        """The samples. `folder` is that of the dataset and may keep a download.

        Raises DataError, with the remedy, if they cannot be had.
        """

"""Text for the prediction of the next token: the sources of Python's standard library, a file of text, or tokens of nanoGPT.

A sample is a window of tokens, and its labels are the tokens one place further. Windows do not overlap. The last tenth of
the tokens makes the test set.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from platform import python_version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckptbench.common.errors import DataError
from ckptbench.common.files import file_sha256, unreadable
from ckptbench.inputs.datasets.dataset import SPLITS, TOKEN, Split
from ckptbench.inputs.datasets.sources.source import Block, Content, Source

BYTES = 256
"""The vocabulary of a text that is read as bytes."""
TEST_SHARE = 10
"""One part of so many is the test set."""
BLOCK_SAMPLES = 4096
TOKENS = ".bin"
REMEDY = f"give the path of a text, or of tokens (a {TOKENS} file of nanoGPT), or null for the sources of Python"


@dataclass(frozen=True, kw_only=True)
class Text(Source):
    """Sequences of bytes or tokens, with the next one as label."""

    name = "text"
    path: str | None = field(
        default=None,
        metadata={
            "description": "A file of any text, read as bytes, or nanoGPT's `.bin` of 16-bit tokens. Without: the sources of Python's standard library (4.7 MB)."
        },
    )
    length: int = field(
        default=256,
        metadata={"description": "Tokens of a sequence.", "ge": 1, "le": 2**20, "strict": True},
    )

    @property
    def sample_shape(self) -> tuple[int]:
        return (self.length,)

    @property
    def classes(self) -> int | None:
        file = self._file()
        return None if file is not None and file.suffix == TOKENS else BYTES

    def _file(self) -> Path | None:
        return None if self.path is None else Path(self.path).expanduser()

    def missing(self, is_made: bool) -> tuple[str, str] | None:
        file = self._file()
        fault = None if file is None else unreadable(file)
        return None if fault is None else ("path", f"{fault}: {REMEDY}")

    def identity(self) -> dict[str, Any]:
        """The checksum of the file, or the version of Python."""
        file = self._file()
        if file is None:
            return {"length": self.length, "python": python_version()}
        return {
            "length": self.length,
            "kind": file.suffix if file.suffix == TOKENS else "text",
            "sha256": file_sha256(file) if file.is_file() else None,
        }

    def content(self, folder: Path) -> Content:
        """Raises DataError if the file cannot be read, or is too short for one sample of each set."""
        tokens, vocabulary, source = self._tokens()
        first_of_test = len(tokens) - len(tokens) // TEST_SHARE
        parts: dict[Split, NDArray[Any]] = {
            "train": tokens[:first_of_test],
            "test": tokens[first_of_test:],
        }
        samples = {split: (len(part) - 1) // self.length for split, part in parts.items()}
        if min(samples.values()) < 1:
            raise DataError(
                f"{source}: {len(tokens):,} tokens are too few for sequences of datasets.text.length = {self.length:,}: "
                f"use at least {TEST_SHARE * (self.length + 1):,} tokens, or shorter sequences"
            )
        return Content(
            source=source,
            sample_shape=self.sample_shape,
            sample_dtype=TOKEN,
            classes=vocabulary,
            samples=samples,
            blocks={split: self._blocks(parts[split], samples[split]) for split in SPLITS},
        )

    def _tokens(self) -> tuple[NDArray[np.uint8] | NDArray[np.uint16], int, str]:
        """All tokens, the size of the vocabulary, and where they come from."""
        file = self._file()
        if file is None:
            return _bytes_of_python(), BYTES, f"the standard library of Python {python_version()}"
        if fault := unreadable(file):
            raise DataError(f"{fault}: {REMEDY}")
        if file.suffix != TOKENS:
            return np.fromfile(file, np.uint8), BYTES, str(file)
        size = file.stat().st_size
        if size == 0 or size % np.dtype(TOKEN).itemsize:
            raise DataError(f"{file}: {size:,} bytes are no tokens of 16 bits: {REMEDY}")
        tokens = np.memmap(file, TOKEN, mode="r")
        return tokens, int(tokens.max()) + 1, str(file)

    def _blocks(self, tokens: NDArray[Any], samples: int) -> Iterator[Block]:
        for first in range(0, samples, BLOCK_SAMPLES):
            count = min(BLOCK_SAMPLES, samples - first)
            start, stop = first * self.length, (first + count) * self.length
            shape = count, self.length
            yield tokens[start:stop].reshape(shape), tokens[start + 1 : stop + 1].reshape(shape)


def _bytes_of_python() -> NDArray[np.uint8]:
    """The modules of the standard library that are one file, in the order of their names."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    text = b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))
    return np.frombuffer(text, np.uint8)

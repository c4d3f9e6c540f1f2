"""The checksum of a checkpoint's files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ckptbench.checkpointing.checksum import BLOCK_BYTES, file_checksum

OF_NO_BYTES = "99aa06d3014798d86001c324468d497f"
"""XXH3-128 of nothing, as xxHash's own tests have it."""


def test_it_is_xxh3_with_128_bits(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert file_checksum(tmp_path / "file") == OF_NO_BYTES


@pytest.mark.parametrize("size", [5, BLOCK_BYTES - 1, BLOCK_BYTES, 2 * BLOCK_BYTES + 7])
def test_every_byte_counts_wherever_a_block_ends(tmp_path: Path, size: int) -> None:
    content = bytearray(np.random.default_rng(size).bytes(size))
    path = tmp_path / "file"
    seen = set()
    for changed in (None, 0, size // 2, size - 1):
        if changed is not None:
            content[changed] ^= 1
        path.write_bytes(content)
        seen.add(file_checksum(path))
    path.write_bytes(content[:-1])
    assert file_checksum(path) not in seen
    assert len(seen) == 4

"""The checksum of a checkpoint's files: XXH3 with 128 bits, by Yann Collet's xxHash.

It is many times faster than SHA-256, so it is known before the sync of the same bytes has ended. It finds damage of
every kind, but it is no signature: whoever can write to the folder can also write files with the same checksum.
"""

from __future__ import annotations

from pathlib import Path

import xxhash

ALGORITHM = "xxh3_128"
"""Name of the checksum in a version's manifest."""
BLOCK_BYTES = 1 << 20
"""Bytes read at a time: they stay in the core's cache until they are added."""


class Checksum:
    """XXH3-128 of bytes that come one after the other. Another thread can run meanwhile."""

    def __init__(self) -> None:
        self._state = xxhash.xxh3_128()

    def update(self, content: memoryview) -> None:
        self._state.update(content)

    def hexdigest(self) -> str:
        """32 hexadecimal digits, as `file_checksum` of a file with the same bytes."""
        return self._state.hexdigest()


def file_checksum(path: Path) -> str:
    """XXH3-128 of the file's bytes, as 32 hexadecimal digits. Another thread can run meanwhile."""
    state = xxhash.xxh3_128()
    block = bytearray(BLOCK_BYTES)
    view = memoryview(block)
    with path.open("rb", buffering=0) as file:
        while read := file.readinto(block):
            state.update(view[:read])
    return state.hexdigest()

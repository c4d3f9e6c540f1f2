"""The checksum of a checkpoint's files: XXH3 with 128 bits, by Yann Collet's xxHash, of the checksums of a file's blocks.

So several threads can compute it, each of other blocks (`copying.c`). It is many times faster than SHA-256, and
known before the sync of the same bytes has ended. It finds damage of every kind, but it is no signature: whoever can write
to the folder can also write files with the same checksum.
"""

from __future__ import annotations

from pathlib import Path

import xxhash

ALGORITHM = "xxh3_128_of_blocks"
"""Name of the checksum in a version's manifest."""
BLOCK_BYTES = 1 << 20
"""The last block of a file may be shorter. A block stays in the core's cache from when it is read until it is added."""


class Checksum:
    """The checksum of bytes that come one after the other. Another thread can run meanwhile."""

    def __init__(self) -> None:
        self._digests = b""
        self._block = xxhash.xxh3_128()
        self._left = BLOCK_BYTES
        """Of the block that has begun."""

    def update(self, content: memoryview) -> None:
        while content.nbytes:
            part, content = content[: self._left], content[self._left :]
            self._block.update(part)
            self._left -= part.nbytes
            if not self._left:
                self._digests += self._block.digest()
                self._block.reset()
                self._left = BLOCK_BYTES

    def hexdigest(self) -> str:
        """32 hexadecimal digits, as `file_checksum` of a file with the same bytes."""
        has_begun = self._left < BLOCK_BYTES
        return of_blocks(self._digests + (self._block.digest() if has_begun else b""))


def of_blocks(digests: bytes) -> str:
    """The checksum, as 32 hexadecimal digits, of a file whose blocks have these XXH3-128, in canonical form."""
    return xxhash.xxh3_128(digests).hexdigest()


def file_checksum(path: Path) -> str:
    """The checksum of the file's bytes. Another thread can run meanwhile."""
    checksum = Checksum()
    block = memoryview(bytearray(BLOCK_BYTES))
    with path.open("rb", buffering=0) as file:
        while read := file.readinto(block):
            checksum.update(block[:read])
    return checksum.hexdigest()

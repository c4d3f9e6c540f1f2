"""What a lock pins: which packages, in which versions. Its hashes only say how each download is checked."""

from __future__ import annotations

import hashlib
from pathlib import Path


def pinned(lock: Path) -> str:
    """The lock without the hashes of its packages, a requirement a line."""
    lines = lock.read_text(encoding="utf-8").splitlines()
    kept = (line for line in lines if not line.lstrip().startswith("--hash="))
    return "".join(line.removesuffix("\\").rstrip() + "\n" for line in kept)


def pinned_sha256(lock: Path) -> str:
    """SHA-256 of `pinned`: equal for locks that make the same environment."""
    return hashlib.sha256(pinned(lock).encode()).hexdigest()

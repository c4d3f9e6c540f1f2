"""Checks of the storage: does it take a save, does fsync reach the device, is a cold read cold?"""

from __future__ import annotations

import dataclasses
import math
import mmap
import os
import time
from pathlib import Path

import numpy as np

from ckptbench.analysis.cost.statistics import Estimate, PerRepeat, with_intervals
from ckptbench.audit.check import NOTHING, Check, Question, exactly
from ckptbench.common import page_cache
from ckptbench.common.files import NO_DIRECT

BLOCK, WRITTEN, READ = 8 * 2**20, 96 * 2**20, 64 * 2**20
ROUNDS = 5
FASTER = 2.0
"""Writes that are synced may be this much faster than direct ones, which go one after the other. Memory is ten times as fast."""
COLD, WARM = 0.9, 0.1
"""Parts of a file: at least so much comes from storage in a cold read, and at most so much in a warm one."""


def bandwidth(folder: Path, *, size: int = WRITTEN) -> Check:
    """A write with fsync must not be much faster than one past the page cache."""
    question = Question(
        check="fsync",
        subject="bandwidth of write and fsync ÷ that of O_DIRECT",
        limit=FASTER,
        holds="a synced write is no faster than the device: durable times are real, as far as the device keeps its promise",
        fails="fsync returns before the device can have the bytes: durable times, and stalls that contain a sync, are too short",
    )
    try:
        return question.at_most(_ratio(folder, size))
    except OSError as error:
        if error.errno not in NO_DIRECT:
            raise
        why = (
            f"this file system takes no O_DIRECT writes ({error.strerror}): nothing to compare with"
        )
    return dataclasses.replace(question, unknown=why).at_most(NOTHING)


def _ratio(folder: Path, size: int) -> Estimate:
    blocks = max(1, size // BLOCK)
    memory = mmap.mmap(-1, BLOCK)  # whole pages: O_DIRECT takes aligned memory alone
    memory.write(np.random.default_rng(0).bytes(BLOCK))
    path = folder / "audit-writes.bin"
    try:
        written_s(path, memory, blocks, os.O_DIRECT)  # the first writes go to fresh blocks
        pairs = [
            (written_s(path, memory, blocks, os.O_DIRECT), written_s(path, memory, blocks, 0))
            for _ in range(ROUNDS)
        ]
    finally:
        path.unlink(missing_ok=True)
        memory.close()
    (found,) = with_intervals([PerRepeat.ratio(*zip(*pairs, strict=True))])
    return found


def written_s(path: Path, memory: mmap.mmap, blocks: int, flags: int) -> float:
    """Seconds until these blocks are written over those of the file, and synced."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o600)
    try:
        started = time.perf_counter()
        for block in range(blocks):
            if os.pwrite(descriptor, memory, block * BLOCK) != BLOCK:
                raise OSError(0, "a write was cut short")
        os.fsync(descriptor)
        return time.perf_counter() - started
    finally:
        os.close(descriptor)


def cold_reads(folder: Path, *, size: int = READ) -> list[Check]:
    """An evicted file must come from storage, and a file that was just read must not."""
    path = folder / "audit-reads.bin"
    try:
        path.write_bytes(np.random.default_rng(0).bytes(size))
        page_cache.evict([path])
        cold, warm = _fetched(path, size), _fetched(path, size)
    finally:
        path.unlink(missing_ok=True)
    evicted = Question(
        check="cold reads",
        subject="part of an evicted file that comes from storage",
        limit=COLD,
        holds="cold restarts read from storage here",
        fails="an evicted file is read from memory, or the kernel does not count the reads of this file system: no restart here is shown to be cold",
        unknown="the kernel does not report how much a process reads: no restart here is shown to be cold",
    )
    again = Question(
        check="cold reads",
        subject="part of a file just read that comes from storage again",
        limit=WARM,
        holds="warm restarts read from memory here",
        fails="what was just read is gone from memory: warm restarts are not warm here",
        unknown="reads from storage are not seen here, so a warm read looks like a cold one",
    )
    # Only where the kernel counts is a small number a finding.
    return [
        evicted.at_least(exactly(cold)),
        again.at_most(exactly(warm) if cold >= COLD else NOTHING),
    ]


def _fetched(path: Path, size: int) -> float:
    """Part of the file that came from storage while it was read; NaN if the kernel does not count."""
    before = page_cache.read_bytes()
    path.read_bytes()
    after = page_cache.read_bytes()
    return math.nan if before is None or after is None else (after - before) / size

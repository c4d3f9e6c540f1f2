"""Does fsync reach the device? By bandwidth, against writes that bypass the page cache, and by the kernel's count of flushes."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ckptbench.analysis.cost.statistics import Estimate, Repeated, estimates
from ckptbench.audit.check import NOTHING, Check, Words, against_limit, exactly
from ckptbench.checkpoints.trial import Unfit, try_versions
from ckptbench.machine.block_device import BlockDevice, device_of
from ckptbench.machine.direct import NO_DIRECT

BLOCK = 8 * 2**20
SIZE = 96 * 2**20
ROUNDS = 5
SYNCS = 40
SYNC_S = 0.005
"""About what a sync takes, so that other programs have as long to flush without one."""
FASTER = 2.0
"""Writes that are synced may be this much faster than direct ones, which go one after the other. Memory is ten times as fast."""
FLUSHED = 0.9
"""Part of the syncs that must have flushed the device. Another program's flush may serve two at once."""


def checks(folder: Path, *, size: int = SIZE, rounds: int = ROUNDS) -> list[Check]:
    """Write into `folder`, which is on the file system of the study's checkpoints."""
    return [_bandwidth(folder, size, rounds), _flushes(folder)]


def takes_versions(folder: Path) -> Check:
    """Whether the file system knows all that a save does to files and folders."""
    try:
        try_versions(folder)
        known, unfit = 1.0, None
    except Unfit as error:
        known, unfit = 0.0, error
    return against_limit(
        "files",
        "saves that the file system can take",
        exactly(known),
        limit=1.0,
        at_most=False,
        unit="1",
        words=Words(
            holds="files and folders are written, synced, renamed and removed as a save does it",
            fails=unfit.told("set checkpoints.folder to a folder on another file system")
            if unfit
            else "",
            unknown="",
        ),
    )


def _bandwidth(folder: Path, size: int, rounds: int) -> Check:
    direct, why = _if_possible(lambda: _ratio(folder, size, rounds))
    return against_limit(
        "fsync",
        "bandwidth of write and fsync ÷ that of O_DIRECT",
        direct,
        limit=FASTER,
        at_most=True,
        unit="1",
        words=Words(
            holds="a synced write is no faster than the device: durable times are real, as far as the device keeps its promise",
            fails="fsync returns before the device can have the bytes: durable times, and stalls that contain a sync, are too short",
            unknown=why or "too noisy to tell: close other programs and run the audit again",
        ),
    )


def _if_possible(measure: Callable[[], Estimate]) -> tuple[Estimate, str]:
    try:
        return measure(), ""
    except OSError as error:
        if error.errno not in NO_DIRECT:
            raise
        return (
            NOTHING,
            f"this file system takes no O_DIRECT writes ({error.strerror}): nothing to compare with",
        )


def _ratio(folder: Path, size: int, rounds: int) -> Estimate:
    blocks = max(1, size // BLOCK)
    memory = mmap.mmap(-1, BLOCK)  # whole pages: O_DIRECT takes aligned memory alone
    memory.write(np.random.default_rng(0).bytes(BLOCK))
    path = folder / "audit-writes.bin"
    try:
        _written_s(path, memory, blocks, os.O_DIRECT)  # the first writes go to fresh blocks
        pairs = [
            (_written_s(path, memory, blocks, os.O_DIRECT), _written_s(path, memory, blocks, 0))
            for _ in range(rounds)
        ]
    finally:
        path.unlink(missing_ok=True)
        memory.close()
    (found,) = estimates([Repeated.ratio(*zip(*pairs, strict=True))])
    return found


def _written_s(path: Path, memory: mmap.mmap, blocks: int, flags: int) -> float:
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


def _flushes(folder: Path) -> Check:
    counted, where = _flushes_of_a_sync(folder)
    return against_limit(
        "fsync",
        "flushes of the device for each fsync",
        counted,
        limit=FLUSHED,
        at_most=False,
        unit="1",
        words=Words(
            holds=f"each fsync tells {where} to empty its cache; whether a host or a controller obeys cannot be seen from here",
            fails=f"fsync does not flush {where}: after a power cut a version that counts as durable may be gone",
            unknown=where,
        ),
    )


def _flushes_of_a_sync(folder: Path) -> tuple[Estimate, str]:
    """How many, with the device's name; or nothing, with the reason."""
    device = device_of(folder)
    if device is None:
        return (
            NOTHING,
            "no block device of this machine holds the checkpoints: nothing counts flushes",
        )
    if device.flushes is None:
        return NOTHING, f"this kernel does not count the flushes of {device.name}"
    if device.caches_writes is False:
        return (
            NOTHING,
            f"{device.name} says that it has no volatile cache, so there is nothing to flush",
        )
    path = folder / "audit-syncs.bin"
    try:
        others = _counted(device, path, sync=False)
        own = _counted(device, path, sync=True)
    finally:
        path.unlink(missing_ok=True)
    return exactly(max(0, own - others) / SYNCS), device.name


def _counted(device: BlockDevice, path: Path, *, sync: bool) -> int:
    """How many flushes the device completes while a file grows SYNCS times, and is synced each time or not."""
    before = device.flushes or 0
    with path.open("ab", buffering=0) as file:
        for _ in range(SYNCS):
            file.write(bytes(4096))
            if sync:
                os.fsync(file.fileno())
            else:
                time.sleep(SYNC_S)
    return (device.flushes or 0) - before

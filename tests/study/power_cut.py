"""A small disk in a file, and what is on it after a power cut: what had reached the disk when its processes were stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

DISK_BYTES = 64 * 2**20
PATIENCE_S = 300


def make_disk(image: Path) -> None:
    """An empty ext4 in a file."""
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)


@contextmanager
def mounted(image: Path, at: Path) -> Iterator[None]:
    """Mount it. The kernel writes back late, so that a cut takes all that no program has synced. Raises CalledProcessError."""
    subprocess.run(
        ["mount", "-o", "loop,commit=300", image, at], check=True, capture_output=True, text=True
    )
    try:
        yield
    except BaseException:
        subprocess.run(["umount", "--lazy", at], check=False)  # something may still use it
        raise
    subprocess.run(["umount", at], check=True)


def repair(image: Path) -> None:
    """As after a power cut, before the disk is mounted: the journal is replayed and the rest checked."""
    done = subprocess.run(["fsck.ext4", "-fy", image], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout


def cut(image: Path, copy: Path, process: int, look: Callable[[], int]) -> int:
    """Stop a process with all that it has started, copy the disk, and let them go on. Returns what `look` saw meanwhile."""
    family = stop(process)
    seen = look()
    snapshot(image, copy)
    for each in reversed(family):
        os.kill(each, signal.SIGCONT)
    return seen


def snapshot(image: Path, copy: Path) -> None:
    """Copy the disk as it is at one moment: between two equal reads the kernel has written nothing."""
    content = image.read_bytes()
    while (again := image.read_bytes()) != content:
        content = again
    copy.write_bytes(content)


def stop(process: int) -> list[int]:
    """Stop it and its descendants, and wait until they have stopped. Returns them, the process first."""
    family = [process]
    for each in family:  # it grows meanwhile; a stopped one starts nothing
        os.kill(each, signal.SIGSTOP)
        deadline = time.monotonic() + PATIENCE_S
        while any(state(task) not in "TtZX" for task in tasks(each)):
            assert time.monotonic() < deadline, f"{each} does not stop"
            time.sleep(0.001)
        family += [child for task in tasks(each) for child in children(task)]
    return family


def tasks(process: int) -> list[Path]:
    return [*Path(f"/proc/{process}/task").glob("*")]


def state(task: Path) -> str:
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


def children(task: Path) -> list[int]:
    return [*map(int, (task / "children").read_text().split())]

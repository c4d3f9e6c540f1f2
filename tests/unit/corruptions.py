"""Ways in which storage, a kill or a hand damages checkpoint versions."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ckptbench.checkpointing.version import version_name

Random = np.random.Generator


def truncate(path: Path, random: Random) -> None:
    os.truncate(path, random.integers(1, path.stat().st_size))


def flip_a_bit(path: Path, random: Random) -> None:
    content = bytearray(path.read_bytes())
    content[random.integers(len(content))] ^= 1 << int(random.integers(8))
    path.write_bytes(content)


def overwrite_a_block(path: Path, random: Random) -> None:
    _write_block(path, random, random.bytes(512))


def zero_a_block(path: Path, random: Random) -> None:
    """As a file system leaves blocks that never reached the disk. Sometimes there were zeros before."""
    _write_block(path, random, bytes(512))


def _write_block(path: Path, random: Random, block: bytes) -> None:
    size = path.stat().st_size
    first = int(random.integers(size))
    with path.open("r+b") as file:
        file.seek(first)
        file.write(block[: min(1 + int(random.integers(512)), size - first)])


def remove(path: Path, random: Random) -> None:
    path.unlink()


def empty(path: Path, random: Random) -> None:
    os.truncate(path, 0)


def double(path: Path, random: Random) -> None:
    path.write_bytes(2 * path.read_bytes())


def put_a_folder_there(path: Path, random: Random) -> None:
    path.unlink()
    path.mkdir()


def link_to_another_version(path: Path, random: Random) -> None:
    path.unlink()
    path.symlink_to(_in_another_version(path, random))


def link_to_itself_elsewhere(path: Path, random: Random) -> None:
    """The very same bytes, behind a link."""
    aside = path.parent.parent.with_name("elsewhere")
    aside.mkdir(exist_ok=True)
    path.rename(aside / path.name)
    path.symlink_to(aside / path.name)


def link_to_nothing(path: Path, random: Random) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def put_a_fifo_there(path: Path, random: Random) -> None:
    path.unlink()
    os.mkfifo(path)


def take_another_versions(path: Path, random: Random) -> None:
    shutil.copyfile(_in_another_version(path, random), path)


def swap_with_another_version(path: Path, random: Random) -> None:
    _swap(path, _in_another_version(path, random))


def swap_within_the_version(path: Path, random: Random) -> None:
    """Those of two ranks, weights and optimizer, or manifest and another."""
    _swap(path, _any(sorted(other for other in path.parent.iterdir() if other != path), random))


Damage = Callable[[Path, Random], None]

ALONE: tuple[Damage, ...] = (
    truncate,
    flip_a_bit,
    overwrite_a_block,
    zero_a_block,
    remove,
    empty,
    double,
    put_a_folder_there,
    put_a_fifo_there,
    link_to_nothing,
    link_to_itself_elsewhere,
)
OF_A_FILE: tuple[Damage, ...] = (
    *ALONE,
    link_to_another_version,
    take_another_versions,
    swap_with_another_version,
    swap_within_the_version,
)
"""Each damages one file of a version; but for those ALONE, it needs the other files and versions whole."""


def lose_the_manifest(version: Path, random: Random) -> None:
    (version / "manifest.json").unlink()


def lose_all_but_the_manifest(version: Path, random: Random) -> None:
    for path in version.iterdir():
        if path.name != "manifest.json":
            path.unlink()


def lose_every_file(version: Path, random: Random) -> None:
    shutil.rmtree(version)
    version.mkdir()


def put_a_file_there(version: Path, random: Random) -> None:
    shutil.rmtree(version)
    version.write_bytes(random.bytes(100))


def add_a_file(version: Path, random: Random) -> None:
    (version / "model.more.npz").write_bytes(random.bytes(100))


def take_another_version(version: Path, random: Random) -> None:
    shutil.rmtree(version)
    shutil.copytree(_another(version, random), version)


def link_to_another(version: Path, random: Random) -> None:
    shutil.rmtree(version)
    version.symlink_to(_another(version, random))


def swap_with_another(version: Path, random: Random) -> None:
    _swap(version, _another(version, random))


def copy_to_a_later_step(version: Path, random: Random) -> None:
    shutil.copytree(version, version.with_name(version_name(99)))


def leave_a_partial_one(version: Path, random: Random) -> None:
    """What a kill leaves of the next version: some of its files, the last of them half-written."""
    _half_written(version, version.with_name(f"{version_name(99)}.partial"), random)


def rename_a_partial_one(version: Path, random: Random) -> None:
    """A version that was never committed, under the name of one that was."""
    _half_written(version, version.with_name(version_name(99)), random)


OF_A_VERSION: tuple[Damage, ...] = (
    lose_the_manifest,
    lose_all_but_the_manifest,
    lose_every_file,
    put_a_file_there,
    add_a_file,
    take_another_version,
    link_to_another,
    swap_with_another,
    copy_to_a_later_step,
    leave_a_partial_one,
    rename_a_partial_one,
)


def _half_written(version: Path, partial: Path, random: Random) -> None:
    """In the order of a save: ranks' files, the format's, the manifest."""
    in_order = sorted(
        version.iterdir(), key=lambda path: (path.suffix == ".json", "rank-" not in path.name)
    )
    partial.mkdir()
    for path in in_order[: random.integers(len(in_order) + 1)]:
        last = shutil.copyfile(path, partial / path.name)
        if random.random() < 0.5:
            truncate(last, random)
            return


def _another(version: Path, random: Random) -> Path:
    return _any(sorted(other for other in version.parent.iterdir() if other != version), random)


def _in_another_version(path: Path, random: Random) -> Path:
    return _another(path.parent, random) / path.name


def _any(paths: list[Path], random: Random) -> Path:
    return paths[random.integers(len(paths))]


def _swap(one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)

"""Pack the packages of locks into a folder, for a machine without a registry that has another Python or glibc.

    python -m scripts.wheelhouse wheelhouse 3.12 manylinux_2_28_x86_64 dev data

A lock that names its Python is packed for that one. Each file has a hash that is locked. A package without a wheel is packed as its source.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from packaging.requirements import Requirement

from ckptbench.inputs.environments.lock_file import python_of, read_lock

ROOT = Path(__file__).resolve().parents[1]
OLD_NAMES = ("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64")
"""Of platforms, which wheels for an older glibc may have. Told of one platform, pip takes no wheel of another."""


def platforms(newest: str) -> list[str]:
    """Those whose wheels run where wheels for the newest one do. Raises ValueError for a name that is not of this kind."""
    found = re.fullmatch(r"manylinux_2_(\d+)_x86_64", newest)
    if found is None:
        raise ValueError(
            f"PLATFORM is {newest}: write it as manylinux_2_28_x86_64 (for glibc 2.28)"
        )
    return [*(f"manylinux_2_{minor}_x86_64" for minor in range(int(found[1]), 4, -1)), *OLD_NAMES]


def requirements(lock: Path, version: str) -> list[str]:
    """The lines of a lock that are for this Python, without their conditions, which pip would take for its own Python's."""
    kept = []
    for line in "\n".join(read_lock(lock).values()).splitlines():
        requirement, *hashes = line.split(" --hash=")
        marker = Requirement(requirement).marker
        target = {"python_version": version, "python_full_version": f"{version}.0"}
        if marker is None or marker.evaluate(target):
            pinned = requirement.partition(";")[0].strip()
            kept.append(" ".join([pinned, *(f"--hash={each}" for each in hashes)]))
    return kept


def pack(lock: Path, folder: Path, version: str, platform: str) -> None:
    """Raises CalledProcessError when pip has said what it could not fetch."""
    named = [part for each in platforms(platform) for part in ("--platform", each)]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", "--implementation", "cp"]  # fmt: skip
    target = ["--python-version", version, *named, "--dest", str(folder)]
    subprocess.run(
        [*command, *target, "--requirement", "/dev/stdin"],
        input="\n".join(requirements(lock, version)),
        text=True,
        check=True,
    )


def main(folder: str, version: str, platform: str, *names: str) -> None:
    if not re.fullmatch(r"3\.\d+", version):
        raise ValueError(f"PYTHON_VERSION is {version}: write it as 3.12")
    locks = [ROOT / "envs" / f"{name}.txt" for name in (*names, "build-constraints")]
    for lock in locks:
        if "torch" in read_lock(lock) and not lock.stem.endswith("-cuda"):
            raise ValueError(
                f"{lock.name} has PyTorch for CPUs, which registries have only for CUDA: pack {lock.stem}-cuda, or use the "
                "PyTorch that is there"
            )
    for lock in locks:
        own = python_of(lock, version)
        print(f"{lock.name}, for Python {own}", flush=True)
        pack(lock, Path(folder), own, platform)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (ValueError, FileNotFoundError) as error:
        sys.exit(str(error))
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)

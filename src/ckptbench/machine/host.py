"""What ran, on what and how it ended: `manifest.json`, and the seal that makes a run folder a result.

A run folder is a result when, and only when, `seal.json` is in it: the sizes and SHA-256 of the manifest and
of every trace, written last. What died half-way has no seal; what was changed since no longer matches it.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
from pathlib import Path
from typing import Any

from ckptbench.allocation import granted_cores, scheduler_job
from ckptbench.digest import file_sha256
from ckptbench.errors import RunFolderError

MANIFEST = "manifest.json"
SEAL = "seal.json"
FINAL_ARRAYS = "final-*.npz"
KEPT_BYTES = 64 * 2**20
"""Of more, no final arrays are kept, as a study of large models would fill the disk: digests compare them."""
SCHEMA_VERSION = 2


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Replace `path` in one step, so that a reader sees the old file or the new one."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    partial.replace(path)


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path}: cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise RunFolderError(f"{path}: holds no JSON object")
    return content


def final_path(folder: Path, rank: int) -> Path:
    """All arrays that a rank of a proof ended with, by the names of the digests."""
    return folder / f"final-{rank}.npz"


def trace_path(folder: Path, rank: int) -> Path:
    return folder / f"trace-{rank}.jsonl"


def seal(folder: Path, ranks: int) -> None:
    """Declare the run folder a result. Call it last."""
    traces = [trace_path(folder, rank) for rank in range(ranks)]
    files = [folder / MANIFEST, *traces, *sorted(folder.glob(FINAL_ARRAYS))]
    write_json(
        folder / SEAL,
        {
            "schema_version": SCHEMA_VERSION,
            "files": {
                path.name: {"bytes": path.stat().st_size, "sha256": file_sha256(path)}
                for path in files
            },
        },
    )


def verify_seal(folder: Path) -> list[Path]:
    """The sealed files, all as they were sealed. Raises RunFolderError where one is missing or changed."""
    path = folder / SEAL
    if not path.exists():
        raise RunFolderError(
            f"{folder}: not a result: the run did not end (no {SEAL}); run the study again to finish it"
        )
    content = read_json(path)
    if content.get("schema_version") != SCHEMA_VERSION:
        raise RunFolderError(
            f"{path}: schema_version is {content.get('schema_version')}, this version reads "
            f"{SCHEMA_VERSION}; remove the folder to run the cell again"
        )
    return [_verified(folder / name, seal) for name, seal in content["files"].items()]


def _verified(path: Path, seal: dict[str, Any]) -> Path:
    if not path.exists():
        found = "is missing"
    elif path.stat().st_size != seal["bytes"]:
        found = f"has {path.stat().st_size} bytes, was sealed with {seal['bytes']}"
    elif file_sha256(path) != seal["sha256"]:
        found = "was changed after it was sealed (checksums differ)"
    else:
        return path
    raise RunFolderError(f"{path} {found}; remove {path.parent} to run the cell again")


def source_revision(repository: Path) -> dict[str, Any]:
    """`{"revision": sha or None, "dirty": bool or None}` of the checkout, None outside of git."""
    revision = _output(["git", "-C", str(repository), "rev-parse", "HEAD"])
    status = _output(["git", "-C", str(repository), "status", "--porcelain"])
    return {
        "revision": revision.strip() if revision else None,
        "dirty": bool(status.strip()) if status is not None else None,
    }


def host_facts(checkpoint_folder: Path) -> dict[str, Any]:
    """The machine that measures: host, kernel, CPU, usable cores, memory, GPUs, checkpoint file system."""
    return {
        "host": socket.gethostname(),
        "kernel": platform.release(),
        "cpu": _cpu_model(),
        "cores": granted_cores(os.environ),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpus": (_output(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]) or "").split("\n")[:-1],
        "checkpoint_file_system": _file_system(checkpoint_folder),
        "scheduler_job": scheduler_job(os.environ),
    }  # fmt: skip


def _output(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _file_system(folder: Path) -> str:
    """Type of the file system that holds `folder`: of all mount points above it, the longest."""
    mounts = [
        line.split() for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    ]
    resolved = folder.resolve()
    above = [(len(mount[1]), mount[2]) for mount in mounts if resolved.is_relative_to(mount[1])]
    return max(above)[1] if above else "unknown"

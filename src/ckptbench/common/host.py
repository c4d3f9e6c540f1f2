"""Facts for a manifest: about the machine, and the git revision of this program."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
from pathlib import Path
from typing import Any

from ckptbench.common.objects import ObjectPath, Place
from ckptbench.common.remedies import type_of

SOURCE = ("src", "plugins", "workflow", "envs", "Snakefile", "pyproject.toml")
"""What decides how a run is made and measured. What a user asks for is not in it: a config is part of every manifest."""


def source_revision(repository: Path) -> dict[str, Any]:
    """`{"revision": sha, "dirty": bool}` of the checkout; both are None if it is not a git repository.

    Dirty is a checkout with a file of SOURCE that is not as committed, or is new.
    """
    revision = _output(["git", "-C", str(repository), "rev-parse", "HEAD"])
    status = _output(["git", "-C", str(repository), "status", "--porcelain", "--", *SOURCE])
    return {
        "revision": revision.strip() if revision else None,
        "dirty": bool(status.strip()) if status is not None else None,
    }


def host_facts(checkpoint_folder: Place) -> dict[str, Any]:
    """Host, kernel, CPU, usable cores, memory, GPUs, and the type of the file system that holds the checkpoints."""
    return {
        "host": socket.gethostname(),
        "kernel": platform.release(),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpus": _gpu_names(),
        "checkpoint_file_system": checkpoint_folder.scheme
        if isinstance(checkpoint_folder, ObjectPath)
        else type_of(checkpoint_folder),
    }  # fmt: skip


def count_gpus() -> int:
    """NVIDIA GPUs that this machine has. In a container without `nvidia-smi` the devices tell."""
    return max(len(_gpu_names()), len([*Path("/dev").glob("nvidia[0-9]*")]))


def _gpu_names() -> list[str]:
    names = _output(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]) or ""
    return names.split("\n")[:-1]


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

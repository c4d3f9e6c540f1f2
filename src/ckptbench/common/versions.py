"""What a Python has: its packages, and the CUDA, NCCL and driver that its GPUs run on. It imports the standard library alone."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

FOUND = "ckptbench found: "
"""Begins the line that `show` prints. A container may print lines of its own before it."""
DRIVER = Path("/proc/driver/nvidia/version")
METADATA = ("METADATA", "PKG-INFO", "")
"""In a `.dist-info`, in a folder `.egg-info`, and where that is a file."""
NAME, VERSION = (re.compile(rf"^{field}:[ \t]*(\S+)", re.MULTILINE) for field in ("Name", "Version"))  # fmt: skip
"""The first lines of a package's metadata have these fields."""


def distributions() -> dict[str, str]:
    """The version of every distribution that this Python can import from. Of two of one name it is the one that is imported."""
    found: dict[str, str] = {}
    for each in metadata.distributions():
        # `each.metadata` parses a whole README as an e-mail, and that each time: of all packages it takes a rank 0.2 s.
        texts = (each.read_text(file) for file in METADATA)
        head = next(filter(None, texts), "").partition("\n\n")[0]
        name, version = NAME.search(head), VERSION.search(head)
        if name and version:
            found.setdefault(name[1], version[1])
    return found


def platform_versions() -> dict[str, str]:
    """Python, and CUDA, NCCL and NVIDIA's driver where they are there."""
    found = {"Python": platform.python_version(), "CUDA": _cuda(), "NCCL": _nccl(), "NVIDIA driver": _driver()}  # fmt: skip
    return {name: version for name, version in found.items() if version}


def show(modules: Sequence[str]) -> None:
    """Print in one line what this Python has, and which of the modules it has not."""
    found = {
        "executable": sys.executable,
        "versions": {**distributions(), **platform_versions()},
        "missing": [name for name in modules if find_spec(name) is None],
    }
    print(f"\n{FOUND}{json.dumps(found)}", flush=True)


def _cuda() -> str | None:
    """For which PyTorch was built; else what a container says. It is read from a file: to import PyTorch takes seconds."""
    for folder in _folders("torch"):
        file = folder / "version.py"
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        if found := re.search(r"^cuda\b.*=\s*['\"]([\d.]+)", text, re.MULTILINE):
            return found[1]
    return os.environ.get("CUDA_VERSION")


def _nccl() -> str | None:
    """That of NVIDIA's wheel, or else of the system."""
    wheels = [str(folder / "nccl/lib/libnccl.so.2") for folder in _folders("nvidia")]
    number = ctypes.c_int()
    for library in (*filter(os.path.exists, wheels), "libnccl.so.2"):
        try:
            ctypes.CDLL(library).ncclGetVersion(ctypes.byref(number))
        except (OSError, AttributeError):
            continue
        scale = 1000 if number.value < 10000 else 10000  # NCCL 2.8 and earlier counted by thousands
        major, rest = divmod(number.value, scale)
        return f"{major}.{rest // 100}.{rest % 100}"
    return None


def _driver() -> str | None:
    text = DRIVER.read_text(encoding="utf-8") if DRIVER.exists() else ""
    found = re.search(r"\d+\.\d+(\.\d+)?", text.partition("\n")[0])
    return found[0] if found else None


def _folders(package: str) -> Iterator[Path]:
    if spec := find_spec(package):
        yield from map(Path, spec.submodule_search_locations or ())

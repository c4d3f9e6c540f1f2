"""Load what a save has written by the reader of its engine. All errors of the reader are handed on."""

from __future__ import annotations

import contextlib
import sys
import zipfile
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from ckptbench_probe import stores
from ckptbench_probe.check.one_save import Given, Values
from ckptbench_probe.check.state import digest
from ckptbench_probe.check.trees import paths
from ckptbench_probe.storage import is_url

WAYS = (
    {"mmap": True, "weights_only": True},
    {"weights_only": True},
    {"weights_only": False},
)
"""To call `torch.load`, the next where one fails: files of an old format cannot be mapped, and objects of the training's own classes need their code."""


def content(value: Any) -> Any:
    """Of a module saved as a whole, its state."""
    return value.state_dict() if hasattr(value, "state_dict") else value


def torch_file(given: Given) -> Values:
    if is_url(given.path):
        with stores.opened(given.path) as file:
            return _loaded(file, WAYS[1:])
    return _loaded(given.path, WAYS)


def _loaded(source: Any, ways: Sequence[dict[str, bool]]) -> Values:
    load = sys.modules["torch"].load
    for options in ways[:-1]:
        try:
            return paths(content(load(source, map_location="cpu", **options)))
        except FileNotFoundError:
            raise
        except Exception:  # noqa: BLE001 - the error of the last way is told
            if hasattr(source, "seek"):
                source.seek(0)
    return paths(content(load(source, map_location="cpu", **ways[-1])))


def safetensors_file(given: Given) -> Values:
    from safetensors import safe_open

    with safe_open(given.path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118 - it is no dict
            yield (name,), file.get_tensor(name)


def keras_file(given: Given) -> Values:
    """HDF5, in a zip or alone. Its names are not those of the variables."""
    return by_value(given, _arrays(given.path))


def by_value(given: Given, arrays: list[Any]) -> Values:
    """What was loaded under other names is found by its digest; what is left, by its shape."""
    left = defaultdict(list)
    for array in arrays:
        left[digest(array)].append(array)
    changed = []
    for name, value in (given.digests or {}).items():
        if left[value]:
            yield name, left[value].pop()
        else:
            changed.append(name)
    rest = [array for alike in left.values() for array in alike]
    for name in changed:
        place = next(
            (i for i, one in enumerate(rest) if tuple(one.shape) == given.shapes[name]), None
        )
        if place is not None:
            yield name, rest.pop(place)


def _arrays(path: str) -> list[Any]:
    import h5py

    found: list[Any] = []

    def visit(name: str, part: Any) -> None:
        if isinstance(part, h5py.Dataset):
            kind = part.attrs.get("dtype")
            kinds = sys.modules["ml_dtypes"] if kind == "bfloat16" else None
            found.append(sys.modules["numpy"].array(part, dtype=kinds and kinds.bfloat16))

    with contextlib.ExitStack() as opened:
        source: Any = path
        if zipfile.is_zipfile(path):
            archive = opened.enter_context(zipfile.ZipFile(path))
            source = opened.enter_context(archive.open("model.weights.h5"))
        opened.enter_context(h5py.File(source, "r")).visititems(visit)
    return found

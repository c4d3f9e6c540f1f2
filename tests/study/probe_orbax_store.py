"""Saves by Orbax to `gs://`, whose arrays tensorstore sends to a server, and whose small files go through fsspec: here to that server's folder.

python probe_orbax_store.py FOLDER URL
"""

from __future__ import annotations

import os
import sys
from typing import Any

import fsspec
import jax
import orbax.checkpoint as ocp
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from orbax.checkpoint._src.path import gcs_utils


class Store(DirFileSystem):
    """In place of gcsfs, which needs Google's packages."""

    protocol = "gs"

    def __init__(self, **_: Any) -> None:
        super().__init__(path=sys.argv[1], fs=LocalFileSystem(auto_mkdir=True))

    def _join(self, path: Any) -> Any:
        if isinstance(path, list):
            return [self._join(one) for one in path]
        return super()._join(os.fspath(path).removeprefix("gs://").rstrip("/"))

    def unstrip_protocol(self, name: str) -> str:
        return f"gs://{name.removeprefix('gs://')}"

    def open(self, path: Any, *args: Any, **kwargs: Any) -> Any:
        return fsspec.AbstractFileSystem.open(self, path, *args, **kwargs)

    def _open(self, path: Any, *args: Any, **kwargs: Any) -> Any:
        return self.fs._open(self._join(path), *args, **kwargs)


def main(url: str) -> None:
    fsspec.register_implementation("gcs", Store, clobber=True)
    gcs_utils.is_hierarchical_namespace_enabled = lambda *_: False
    weights = jax.random.normal(jax.random.key(0), (256, 256))
    options = ocp.CheckpointManagerOptions(save_interval_steps=2)
    with ocp.CheckpointManager(url, options=options) as manager:
        for step in range(1, 5):
            weights = (weights * 1.01).block_until_ready()
            manager.save(step, args=ocp.args.StandardSave({"weights": weights}))


if __name__ == "__main__":
    main(sys.argv[2])

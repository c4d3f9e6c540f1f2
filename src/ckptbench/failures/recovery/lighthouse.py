"""The program of torchft's lighthouse: `python -m ckptbench.failures.recovery.lighthouse HEARTBEAT_MS JOIN_MS`.

It prints its port, and serves until its standard input ends. torchft's own program would import PyTorch first, and its
port would have to be chosen before it starts.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from ckptbench.common.processes import die_with_parent


def _native() -> ModuleType:
    """The compiled module of torchft, without the package around it."""
    package = importlib.util.find_spec("torchft")
    assert package is not None
    assert package.submodule_search_locations is not None
    (path,) = Path(package.submodule_search_locations[0]).glob("_torchft*.so")
    spec = importlib.util.spec_from_file_location("_torchft", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    die_with_parent()
    heartbeat_ms, join_ms = map(int, sys.argv[1:])
    server = _native().LighthouseServer(
        bind="127.0.0.1:0",
        min_replicas=1,
        join_timeout_ms=join_ms,
        heartbeat_timeout_ms=heartbeat_ms,
    )
    print(server.address().rpartition(":")[2], flush=True)
    sys.stdin.read()
    server.shutdown()


if __name__ == "__main__":
    main()

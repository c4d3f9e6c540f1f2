"""What runs in a scheduler's job: a launcher of ranks, which notes how it ended.

Run as `python rank_launcher.py REQUEST`, a `rank_jobs.Request` as JSON; the outcome is written beside it.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import sys
from pathlib import Path

from ckptbench.common.errors import CkptbenchError
from ckptbench.launch import limits, watch
from ckptbench.launch import ranks as launch
from ckptbench.launch.allocation import read_allocation
from ckptbench.launch.starters import Program

PROBE = Path(__file__).with_name("rank_probe.py")


class ImpatientWatch(watch._Watch):
    """However slowly the others come up, the last one is late."""

    def _supervise(self) -> None:
        if len(self._control.missing) == 1:
            limits.COME_UP_SECONDS = 0.0
        super()._supervise()


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    path = Path(sys.argv[1])
    request = json.loads(path.read_text())
    if request["impatient"]:
        watch._Watch = ImpatientWatch  # type: ignore[misc]
    command = [request["python"], str(PROBE), str(path.parent), request["accelerator"]]
    program = Program(
        command=[*command, json.dumps(request["acts"])],
        logs=path.parent / "logs",
        mpiexec=Path(request["mpiexec"]) if request["mpiexec"] else None,
    )
    allocation = read_allocation(os.environ)
    if request["elsewhere"]:
        allocation = dataclasses.replace(allocation, here=None)
        os.environ["HYDRA_LAUNCHER_AUTOFORK"] = "0"  # mpiexec would know its own host all the same
    (path.parent / "launcher.pid").write_text(str(os.getpid()))
    error = None
    try:
        launch.run_ranks(program, request["ranks"], allocation, limits.Limits(), threads=1)
    except CkptbenchError as caught:
        error = str(caught)
    note(path.with_name("outcome.json"), error)


def note(path: Path, error: str | None) -> None:
    """At once, for a test waits for the file."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"error": error}))
    new.replace(path)


if __name__ == "__main__":
    main()

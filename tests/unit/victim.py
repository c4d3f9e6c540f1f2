"""A rank without a framework: it does steps of 10 ms, saves every fifth, and reports to its injector."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from ckptbench.failures.injector_client import InjectorClient
from ckptbench.run.control.ranks import RankContext
from ckptbench.run.failure import Failure


def save(folder: Path) -> None:
    with (folder / "versions" / "version").open("wb") as file:
        file.write(bytes(3 * 2**20))
        file.flush()
        os.fsync(file.fileno())


def main() -> None:
    failures, folder, attempt, steps = json.loads(sys.argv[1])
    world = RankContext(
        rank=0, world_size=1, local_rank=0, node="here", threads=1, addresses=("127.0.0.1:1",)
    )
    target = InjectorClient.open(
        [Failure.from_json(each) for each in failures],
        world,
        run_folder=Path(folder),
        attempt=attempt,
        near=[Path(folder) / "near"],
    )
    (Path(folder) / "versions").mkdir(exist_ok=True)
    for done in range(steps):
        target.report_step(done)
        time.sleep(0.01)
        with (Path(folder) / "steps").open("a") as file:
            file.write(f"{done}\n")
        if (done + 1) % 5 == 0:
            target.report_save(done + 1)
            save(Path(folder))
            target.at_stage("written")
    target.close()
    save(Path(folder))  # as one that a strategy has still to finish


main()

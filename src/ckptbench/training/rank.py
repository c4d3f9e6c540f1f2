"""One rank, from its start to its end: `python -m ckptbench.rank PLAN`."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from importlib import metadata
from pathlib import Path

from ckptbench.errors import CkptbenchError
from ckptbench.frameworks import FRAMEWORKS
from ckptbench.frameworks.base import Framework, Place
from ckptbench.link import Link
from ckptbench.manifest import trace_path
from ckptbench.place import (
    LAUNCHED,
    LOGS,
    die_with_parent,
    ignore_stop_signals,
    read_seat,
    take_place,
)
from ckptbench.plan import Plan
from ckptbench.recorder import Recorder, boot_id, clock
from ckptbench.train import Stopped, Trainer

log = logging.getLogger("ckptbench.rank")


def run_rank(plan: Plan, place: Place, link: Link, started_ns: int) -> None:
    """Train this rank and write its trace. `started_ns` is when this process began to run Python."""
    recorder = Recorder(trace_path(plan.run_folder, place.rank))
    recorder.phase("launch", launched_ns(os.environ[LAUNCHED], started_ns), started_ns)
    met_ns = clock()
    recorder.phase("meet", started_ns, met_ns)
    framework_class = FRAMEWORKS[plan.cell.framework].load()
    imported_ns = clock()
    recorder.phase("import", met_ns, imported_ns)
    try:
        framework = framework_class.join(
            place, seed=plan.seed, deterministic=plan.cell.deterministic
        )
    except CkptbenchError as error:
        _tell(error)
        raise
    recorder.phase("join", imported_ns, clock())
    try:
        _record_start(recorder, plan, place, framework)
        trainer = Trainer(plan, place, link, recorder, framework)
        trainer.build()
        trainer.train(trainer.start())
        framework.close()
    except Stopped as stopped:
        log.info("%s", stopped)
        framework.close()
        link.tell_stopped(stopped.steps_done)
        recorder.close()
        return
    except BaseException as error:
        log.error("rank %d died", place.rank, exc_info=not isinstance(error, CkptbenchError))
        _tell(error)
        link.hang_up()
        framework.abort()  # or the other ranks would wait for this one for ever
        raise
    recorder.event("end", monotonic_ns=clock())
    recorder.close()


def _tell(error: BaseException) -> None:
    log.error("%s: %s", type(error).__name__, error)


def launched_ns(told: str, started_ns: int) -> int:
    """When the launcher started the ranks, on this host's monotonic clock.

    Another host's is another clock: between hosts the wall clocks, which clusters keep in step, tell the distance.
    """
    boot, monotonic_ns, unix_ns = told.split()
    if boot == boot_id():
        return int(monotonic_ns)
    return started_ns - max(0, time.time_ns() - (clock() - started_ns) - int(unix_ns))


def _record_start(recorder: Recorder, plan: Plan, place: Place, framework: Framework) -> None:
    recorder.event(
        "start",
        attempt=plan.attempt,
        rank=place.rank,
        world_size=place.world_size,
        host=place.node,
        pid=os.getpid(),
        device=framework.device(),
        monotonic_ns=clock(),
        unix_ns=time.time_ns(),
        versions=_versions(),
    )


def _versions() -> dict[str, str]:
    """Every distribution of this environment with its version: the lock as it was installed."""
    return {
        distribution.metadata["Name"]: distribution.version
        for distribution in metadata.distributions()
    }


def main(arguments: list[str] | None = None) -> int:
    started_ns = clock()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan", type=Path, help="plan.json of the run")
    plan = Plan.read(parser.parse_args(arguments).plan)
    seat, _ = read_seat()
    die_with_parent()
    ignore_stop_signals()
    log_to(Path(os.environ[LOGS]) / f"rank-{seat.rank}.log")
    logging.basicConfig(format=f"%(asctime)s rank {seat.rank}: %(message)s", stream=sys.stderr)
    # Not the root's level: frameworks have much to say on theirs, and Chainer's imports reset it.
    logging.getLogger("ckptbench").setLevel(logging.INFO)
    try:
        place, link = take_place(accelerator=plan.cell.accelerator)
    except CkptbenchError as error:
        _tell(error)
        return 1
    try:
        run_rank(plan, place, link, started_ns)
    except CkptbenchError:
        return 1  # the log has its one line
    link.close()
    return 0


def log_to(path: Path) -> None:
    """Send all that this process prints, native libraries included, to its own log."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, sys.stdout.fileno())
    os.dup2(descriptor, sys.stderr.fileno())
    os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())

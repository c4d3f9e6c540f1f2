"""The program of one rank: `python -m ckptbench.training.rank ACCELERATOR PLAN`."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ckptbench.checkpointing import preflight
from ckptbench.checkpointing.copying import has_c_copy
from ckptbench.checkpointing.levels import local_folders
from ckptbench.common.clock import Instant, boot_id, clock, day_ns
from ckptbench.common.errors import CkptbenchError
from ckptbench.common.files import open_regular
from ckptbench.common.processes import die_with_parent, end_with_parent, ignore_stop_signals
from ckptbench.common.remedies import in_one_line
from ckptbench.common.versions import distributions, platform_versions
from ckptbench.failures.injector_client import InjectorClient
from ckptbench.failures.recovery.contract import RankRecovery
from ckptbench.frameworks.contract import Framework
from ckptbench.matrix.registry import FRAMEWORKS, RECOVERIES, load
from ckptbench.run.control.joining import join_ranks
from ckptbench.run.control.link import Link
from ckptbench.run.control.ranks import RankContext
from ckptbench.run.control.variables import LAUNCHED, LOGS, STARTED, TUNABLES, read_assignment
from ckptbench.run.events import End, Phase, Start
from ckptbench.run.layout import trace_path
from ckptbench.run.plan import Plan
from ckptbench.run.recorder import Recorder
from ckptbench.training.loop import Stopped, Trainer

log = logging.getLogger("ckptbench.training.rank")


def run_rank(plan: Plan, world: RankContext, link: Link, started_ns: int) -> RankRecovery:
    """Train this rank and write its trace. `started_ns` is the time at which `main` of this process began.

    Returns the recovery, whose `leave` ends the process.
    """
    try:
        if _checks_node(plan, world, link):
            preflight.check_node(
                plan,
                world.node,
                ranks_here=len(world.ranks_here),
                part=len(world.ranks_here) / world.world_size,
            )
        recorder = Recorder(trace_path(plan.run_folder, world.rank))
        launched = launched_ns(link, os.environ, started_ns)
        recorder.write(Phase(name="launch", start_ns=launched, end_ns=started_ns))
        met_ns = clock()
        recorder.write(Phase(name="meet", start_ns=started_ns, end_ns=met_ns))
        injector = InjectorClient.open(
            plan.failures,
            world,
            run_folder=plan.run_folder,
            attempt=plan.attempt,
            near=local_folders(plan, node=world.node if world.is_spread else None),
            is_replacement=link.is_replacement,
        )
        framework_class: type[Framework] = load(FRAMEWORKS[plan.cell.framework].location)
        imported_ns = clock()
        recorder.write(Phase(name="import", start_ns=met_ns, end_ns=imported_ns))
        chosen, entry = plan.cell.recovery, RECOVERIES[plan.cell.recovery.name]
        recovery: RankRecovery = load(entry.rank)(world, link, chosen.chosen(entry.options))
        framework = framework_class.join(
            recovery.framework_world, seed=plan.seed, deterministic=plan.cell.deterministic
        )
        recovery.adopt(framework)
    except BaseException as error:
        _log_death(world, error)
        link.hang_up()  # the launcher ends the others, who may wait for this one in their library
        raise
    try:
        recorder.write(Phase(name="join", start_ns=imported_ns, end_ns=clock()))
        _record_start(recorder, plan, world, framework)
        trainer = Trainer(
            plan, world, link, recorder, framework, injector=injector, recovery=recovery
        )
        trainer.build()
        trainer.train(trainer.start())
        trainer.settle()  # a failure may strike in the last checkpoint
        injector.close()
        trainer.close()
        recovery.close()
    except Stopped as stopped:
        log.info("%s", stopped)
        with log_errors(world):
            recovery.close()
            recorder.sync()
            recorder.close()
            link.tell_stopped(stopped.steps_done)
        return recovery
    except BaseException as error:
        _log_death(world, error)
        link.hang_up()
        recovery.abort()  # otherwise the other ranks would wait for this one for ever
        raise
    with log_errors(world):
        recorder.write(End(monotonic_ns=clock()))
        recorder.sync()  # before the launcher says that the run is complete
        recorder.close()
    return recovery


def _checks_node(plan: Plan, world: RankContext, link: Link) -> bool:
    """Whether this rank checks its node for all ranks there: the launcher sees its own node alone.

    Not in a restart that is timed: the node was checked when the run began.
    """
    timed = plan.attempt > 1 and plan.cell.is_struck
    return world.is_spread and world.local_rank == 0 and not (timed or link.is_replacement)


@contextmanager
def log_errors(world: RankContext) -> Iterator[None]:
    """Write an error into the log of this rank, and raise it."""
    try:
        yield
    except BaseException as error:
        _log_death(world, error)
        raise


def _log_death(world: RankContext, error: BaseException) -> None:
    known = isinstance(error, CkptbenchError) or in_one_line(error) is not None
    log.error("rank %d died", world.rank, exc_info=not known)
    _log_error(error)


def _log_error(error: BaseException) -> None:
    log.error("%s: %s", type(error).__name__, in_one_line(error) or error)


def launched_ns(link: Link, environment: Mapping[str, str], started_ns: int) -> int:
    """When this rank was started, in ns of this host's monotonic clock, for a process whose `main` began at `started_ns`.

    Every host has its own monotonic clock. If the launcher runs on another host, the difference is that of the
    times of day, which clusters synchronize.
    """
    if link.is_replacement and STARTED in environment:  # the launcher has not started it itself
        ago_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - int(float(environment[STARTED]) * 1e9)
        return min(clock() - ago_ns, started_ns)
    launched = Instant.read(link.launched or environment[LAUNCHED])
    if launched.boot == boot_id():
        return min(launched.monotonic_ns, started_ns)
    return started_ns - max(0, day_ns(started_ns) - launched.day_ns)


def _record_start(recorder: Recorder, plan: Plan, world: RankContext, framework: Framework) -> None:
    recorder.write(
        Start(
            attempt=plan.attempt,
            rank=world.rank,
            world_size=world.world_size,
            host=world.node,
            pid=os.getpid(),
            device=framework.device(),
            monotonic_ns=(at_ns := clock()),
            unix_ns=day_ns(at_ns),
            versions=_versions(),
        )
    )
    if plan.failures:
        recorder.sync()  # the launcher reads it after a loss, perhaps on another node


def _versions() -> dict[str, str]:
    """Versions of all that is installed in this environment and of what its GPUs run on, and what else changes how fast it trains or saves."""
    return {
        **distributions(),
        **platform_versions(),
        "ckptbench's copy": "native" if has_c_copy() else "numpy",
        TUNABLES: os.environ.get(TUNABLES, "not set"),
    }


def main(arguments: list[str] | None = None) -> int:
    started_ns = clock()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("accelerator", help="that of the cell")
    parser.add_argument(
        "plan", type=Path, help="plan.json of the run, which is read when all ranks have come up"
    )
    given = parser.parse_args(arguments)
    become_rank()
    try:
        world, link = join_ranks(accelerator=given.accelerator)
        plan = Plan.read(given.plan)  # the launcher may have chosen it while the ranks came up
    except CkptbenchError as error:
        _log_error(error)
        return 1
    try:
        recovery = run_rank(plan, world, link, started_ns)
    except Exception:  # noqa: BLE001 (run_rank has logged it; a second traceback would push it out of the launcher's tail)
        return 1
    link.close()
    recovery.leave(0)
    return 0


def become_rank() -> None:
    """Make this process one of a launcher: it ends with the launcher, leaves signals to it, and prints to its rank's log."""
    assignment, _ = read_assignment()
    die_with_parent()
    ignore_stop_signals()
    log_to(Path(os.environ[LOGS]) / f"rank-{assignment.rank}.log")
    logging.basicConfig(
        format=f"%(asctime)s rank {assignment.rank}: %(message)s", stream=sys.stderr
    )
    # Not on the root logger: frameworks would fill the log, and importing Chainer resets the root's level.
    logging.getLogger("ckptbench").setLevel(logging.INFO)


def log_to(path: Path) -> None:
    """Send everything that this process prints to its own log, also what native libraries print."""
    descriptor = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, sys.stdout.fileno())
    os.dup2(descriptor, sys.stderr.fileno())
    os.close(descriptor)


if (
    __name__ == "__mp_main__"
):  # multiprocessing imports this module first in a process that an engine spawns
    end_with_parent()
if __name__ == "__main__":
    sys.exit(main())

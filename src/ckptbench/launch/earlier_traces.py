"""The traces of an earlier attempt that is continued: what they lack, and what is moved away because no rank could continue it."""

from __future__ import annotations

import logging
from pathlib import Path

from ckptbench.checkpointing.version import Version
from ckptbench.common.errors import RunFolderError
from ckptbench.common.removal import keep_aside
from ckptbench.matrix.registry import RECOVERIES
from ckptbench.run.events import Epoch, Event, Start
from ckptbench.run.layout import LAUNCHER_TRACE, trace_path
from ckptbench.run.plan import Plan
from ckptbench.run.position import Position
from ckptbench.run.trace import whole_events

log = logging.getLogger(__name__)


def keep_damaged_traces(plan: Plan) -> None:
    """Move the traces aside if one of them is lost or damaged: it could not be continued, and they count attempts alike.

    Not those of a struck run, whose failures nobody could explain without them.
    """
    if plan.cell.is_struck:
        return
    traces = [trace_path(plan.run_folder, rank) for rank in range(plan.cell.ranks)]
    launcher = plan.run_folder / LAUNCHER_TRACE
    if wrong := next(filter(None, [_damage_of(path, needs=Start) for path in traces]), None):
        keep_traces(plan, wrong)
    elif wrong := _damage_of(launcher):
        log.warning("%s: it is kept in %s", wrong, keep_aside([launcher]))


def keep_traces(plan: Plan, why: str) -> None:
    """Move the traces of all ranks and of the launcher aside, and say so in the log. Raises OSError."""
    kept = keep_aside([*plan.run_folder.glob("trace-*.jsonl"), plan.run_folder / LAUNCHER_TRACE])
    left = f"; what is left is kept in {kept}" if kept else ""
    log.warning("%s: the run goes on with new ones%s", why, left)


def _damage_of(path: Path, *, needs: type[Event] | None = None) -> str | None:
    """What is wrong with a trace, which must have an event of the kind that it `needs`. None: nothing."""
    try:
        kinds = {type(event) for event in whole_events(path)}
    except RunFolderError as error:
        return str(error).partition("; remove ")[0]
    return None if needs is None or needs in kinds else f"{path} is lost, or was cut short"


def warn_of_lost_epochs(plan: Plan, version: Version) -> None:
    """Say in the log what nobody will write any more. Raises RunFolderError if a trace is damaged."""
    if lost := _lost_epoch(plan, version.position):
        log.warning("%s, which comes before %s: tables will lack it", lost, version.folder)


def _lost_epoch(plan: Plan, position: Position) -> str | None:
    """The first epoch before `position` that a trace lacks, in words. None: every trace has all of them.

    Where ranks may be lost and the others go on, it is enough that one trace has it.
    """
    paths = [trace_path(plan.run_folder, rank) for rank in range(plan.cell.ranks)]
    recorded = [{e.epoch for e in whole_events(path) if isinstance(e, Epoch)} for path in paths]
    if RECOVERIES[plan.cell.recovery.name].keeps_survivors:
        recorded = [set().union(*recorded)]
    for path, epochs in zip(paths, recorded, strict=False):
        for epoch in range(position.step // plan.steps_per_epoch):
            if epoch not in epochs:
                return f'{path} has no "epoch" event for epoch {epoch}'
    return None

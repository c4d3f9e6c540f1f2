"""The failures that have struck a run, from the journals of its injectors."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from operator import attrgetter
from pathlib import Path

from ckptbench.errors import LaunchError
from ckptbench.matrix.catalogue import UNWRITABLE
from ckptbench.runs.events import Lost, Rested, SaveFailed, Strike, Struck
from ckptbench.runs.layout import LAUNCHER_TRACE, STRIKES, strikes_path, trace_path
from ckptbench.runs.plan import Plan
from ckptbench.runs.trace import whole_events

NOTICED_NS = 5e9
"""The launcher notices a loss at the latest so long after its cause is over."""
REMOVED_S = 60.0
"""For so long the launcher waits for what a lost node held to be removed."""
LOOK_S = 0.02


def check_struck(plan: Plan, victims: Sequence[int], survivors: Collection[int]) -> None:
    """Raises LaunchError where a failure of a run that is over did not strike as planned.

    `victims` has the (first) victim of every failure. Ranks that are not among the `survivors` were lost and not replaced:
    what was still to strike them, nothing could.
    """
    known = set()
    missed = set()
    for rank in range(plan.cell.ranks):
        path = strikes_path(plan.run_folder, rank)
        if not path.exists():
            continue
        journal = list(whole_events(path))
        rested = [event for event in journal if isinstance(event, Rested)]
        begun = {event.failure for event in journal if isinstance(event, Strike)}
        done = {event.failure for event in journal if isinstance(event, Struck)}
        known |= begun
        missed |= begun - done
        if rested:
            known |= set(rested[-1].ahead)
            missed |= set(rested[-1].missed)
        elif rank in survivors:
            raise LaunchError(
                f"{path.name}: the injector was gone before training was over; see the logs of the ranks"
            )
    if never := [number for number in sorted(missed) if victims[number] in survivors]:
        said = ", ".join(str(plan.failures[number]) for number in never)
        raise LaunchError(
            f"{said} did not strike: what it waits for never came. In the list of failures, name steps that the run reaches "
            "(and saves, if moment is save), and a recovery only after another failure"
        )
    _check_writes(plan)
    unknown = set(range(len(victims))) - known - missed
    if lost := sorted(number for number in unknown if victims[number] in survivors):
        raise LaunchError(f"the failures {lost} did not strike: their injectors left no journal")


def _check_writes(plan: Plan) -> None:
    """Raises LaunchError where a disk could not be written to and no write has failed."""
    strikes = [each for each in recorded_strikes(plan.run_folder) if each.kind in UNWRITABLE]
    followings = [*strikes[1:], None][: len(strikes)]
    for strike, following in zip(strikes, followings, strict=True):
        if not _stopped_a_write(strike, following, plan):
            raise LaunchError(
                f"failure {strike.failure} ({strike.kind}) struck, and no write failed: let it last until a checkpoint is written"
                + (" that is larger than 1 MiB" if strike.kind == "full_disk" else "")
            )


def _stopped_a_write(strike: Strike, following: Strike | None, plan: Plan) -> bool:
    """Whether a save failed between this strike and the following one. Where a rank was lost meanwhile, it may have had no time to tell."""
    until_ns = math.inf if following is None else following.monotonic_ns
    victim = plan.failures[strike.failure].rank
    ranks = range(plan.cell.ranks) if victim is None else [victim]
    failed = [
        event.at_ns
        for rank in ranks
        for event in whole_events(trace_path(plan.run_folder, rank))
        if isinstance(event, SaveFailed)
    ]
    over_ns = _over_ns(plan.run_folder).get(strike.failure, math.inf) + NOTICED_NS
    lost = [
        event.unix_ns
        for event in whole_events(plan.run_folder / LAUNCHER_TRACE)
        if isinstance(event, Lost)
    ]
    return any(strike.monotonic_ns < at < until_ns for at in failed) or any(
        strike.unix_ns < at < over_ns for at in lost
    )


def have_passed(folder: Path) -> Collection[int]:
    """The failures that are over, by number: their victims are gone, or go on."""
    return _over_ns(folder).keys()


def _over_ns(folder: Path) -> dict[int, float]:
    """When each failure was over, in ns since 1970."""
    return {
        event.failure: event.unix_ns
        for path in folder.glob(STRIKES)
        for event in whole_events(path)
        if isinstance(event, Struck)
    }


def await_lost_nodes(plan: Plan) -> None:
    """Return when nothing is left of the nodes that this attempt has lost: what they hold is removed after their ranks have ended."""
    strikes = recorded_strikes(plan.run_folder)[plan.strikes :]
    struck = {each.failure: plan.failures[each.failure] for each in strikes}
    lost = {number for number, each in struck.items() if each.node is not None and each.kills}
    end = time.monotonic() + REMOVED_S
    while not lost <= set(have_passed(plan.run_folder)) and time.monotonic() < end:
        time.sleep(LOOK_S)


def recorded_strikes(folder: Path) -> list[Strike]:
    """All strikes, in their order. The run may still be going on."""
    strikes = [
        event
        for path in folder.glob(STRIKES)
        for event in whole_events(path)
        if isinstance(event, Strike)
    ]
    return sorted(strikes, key=attrgetter("unix_ns"))

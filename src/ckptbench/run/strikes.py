"""The failures that have struck a run, from the journals of its injectors."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from operator import attrgetter
from pathlib import Path

from ckptbench.common.errors import LaunchError
from ckptbench.run.events import Event, Strike, Struck, Unfired
from ckptbench.run.layout import STRIKES, strikes_path
from ckptbench.run.plan import Plan
from ckptbench.run.trace import whole_events

REMOVED_S = 60.0
"""For so long the launcher waits for what a lost node held to be removed."""
LOOK_S = 0.02


def recorded_strikes(folder: Path) -> list[Strike]:
    """All strikes, in their order. The run may still be going on."""
    strikes = [event for event in journals(folder) if isinstance(event, Strike)]
    return sorted(strikes, key=attrgetter("unix_ns"))


def have_passed(folder: Path) -> set[int]:
    """The numbers of the failures that are over, because their victims are gone or go on."""
    return {event.failure for event in journals(folder) if isinstance(event, Struck)}


def journals(folder: Path) -> Iterator[Event]:
    """The events of all injectors, journal after journal."""
    for path in sorted(folder.glob(STRIKES)):
        yield from whole_events(path)


def check_struck(plan: Plan, victims: Sequence[int], survivors: Collection[int]) -> None:
    """Raises LaunchError where a failure of a run that is over did not strike as planned.

    `victims` has the (first) victim of every failure. Ranks that are not among the `survivors` were lost and not replaced:
    what was still to strike them, nothing could.
    """
    begun = {strike.failure for strike in recorded_strikes(plan.run_folder)}
    missed = begun - have_passed(plan.run_folder)
    ahead: set[int] = set()
    for rank in sorted(set(victims) & set(survivors)):
        path = strikes_path(plan.run_folder, rank)
        unfired = [event for event in whole_events(path) if isinstance(event, Unfired)]
        if not unfired:
            raise LaunchError(
                f"{path.name}: the injector was gone before training was over; see the logs of the ranks"
            )
        ahead |= set(unfired[-1].ahead)
        missed |= set(unfired[-1].missed)
    if never := [number for number in sorted(missed) if victims[number] in survivors]:
        said = ", ".join(str(plan.failures[number]) for number in never)
        raise LaunchError(
            f"{said} did not occur: its step, save or recovery never came. In the list of failures, name steps that the run reaches (and saves, "
            "if moment is save), and a recovery only after another failure"
        )
    untold = set(range(len(victims))) - begun - ahead
    if lost := sorted(number for number in untold if victims[number] in survivors):
        raise LaunchError(f"the failures {lost} did not occur: their injectors recorded nothing")


def await_lost_nodes(plan: Plan) -> None:
    """Return when nothing is left of the nodes that this attempt has lost: what they hold is removed after their ranks have ended."""
    strikes = recorded_strikes(plan.run_folder)[plan.strikes :]
    struck = {each.failure: plan.failures[each.failure] for each in strikes}
    lost = {number for number, each in struck.items() if each.node is not None and each.kills}
    end = time.monotonic() + REMOVED_S
    while not lost <= have_passed(plan.run_folder) and time.monotonic() < end:
        time.sleep(LOOK_S)

"""The failures that have struck a run, from the journals of its strikers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import attrgetter
from pathlib import Path

from ckptbench.errors import LaunchError
from ckptbench.matrix.catalogue import UNWRITABLE
from ckptbench.runs.events import Lost, Rested, Strike, Struck
from ckptbench.runs.layout import LAUNCHER_TRACE, STRIKES, strikes_path
from ckptbench.runs.plan import Plan
from ckptbench.runs.trace import whole_events


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
                f"{path.name}: the striker was gone before training was over; see the logs of the ranks"
            )
    if never := [number for number in sorted(missed) if victims[number] in survivors]:
        said = "; ".join(str(dict(plan.failures[number])) for number in never)
        raise LaunchError(
            f"these failures did not strike: {said}. Name steps that the run reaches and saves, and a recovery only "
            "after another failure"
        )
    _check_writes(plan)
    unknown = set(range(len(victims))) - known - missed
    if lost := sorted(number for number in unknown if victims[number] in survivors):
        raise LaunchError(f"the failures {lost} did not strike: their strikers left no journal")


def _check_writes(plan: Plan) -> None:
    """Raises LaunchError where a disk could not be written to and nobody noticed."""
    lost = [
        event.unix_ns
        for event in whole_events(plan.run_folder / LAUNCHER_TRACE)
        if isinstance(event, Lost)
    ]
    for strike in recorded_strikes(plan.run_folder):
        if strike.kind in UNWRITABLE and not any(at > strike.unix_ns for at in lost):
            raise LaunchError(
                f"failure {strike.failure} ({strike.kind}) struck, and no write failed: let it last until a checkpoint is written"
                + (" that is larger than 1 MiB" if strike.kind == "full_disk" else "")
            )


def recorded_strikes(folder: Path) -> list[Strike]:
    """All strikes, in their order. The run may still be going on."""
    strikes = [
        event
        for path in folder.glob(STRIKES)
        for event in whole_events(path)
        if isinstance(event, Strike)
    ]
    return sorted(strikes, key=attrgetter("unix_ns"))

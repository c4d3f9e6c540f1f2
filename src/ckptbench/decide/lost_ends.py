"""Jobs of which Slurm has lost the end: they run for ever in its accounting, and would be time in which nothing failed."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ckptbench.decide.failure_file import FailureFile
from ckptbench.decide.units import SECONDS_PER_DAY

MOST_SHOWN = 3
REMEDY = "not counted, as Slurm may have lost their end: see `sacctmgr show runawayjobs`; if they do run, give gpus, from and to in a YAML file"


def without_lost_ends(
    jobs: pd.DataFrame, file: FailureFile
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """The jobs that can be believed, and sentences on the others."""
    ended = jobs[~jobs["is_running"]]
    doubts: list[str] = []
    if len(ended):
        longest_s = float(ended["elapsed_s"].max())
        begin_s = ended["end_s"].min() if file.begin is None else file.begin
        long_before_s = 2 * begin_s - jobs["end_s"].max()
        lost = jobs["is_running"] & (
            (jobs["elapsed_s"] > longest_s) | (jobs["end_s"] - jobs["elapsed_s"] < long_before_s)
        )
        if lost.any():
            why = f"for longer than any that ended ({longest_s / SECONDS_PER_DAY:.3g} days), or since long before these"
            doubts.append(f"{_shown(jobs[lost])} {why}: {REMEDY}")
            jobs = jobs[~lost]
    there = file.gpus if file.log is not None else None  # --gpus says how many train
    if there is not None and (kept := _that_fit(jobs, there)) is not jobs:
        doubts.append(f"{_shown(jobs.drop(kept.index))} on more GPUs at once than the {there:,} of `gpus`: {REMEDY}")  # fmt: skip
        jobs = kept
    if there is not None and (most := _most_at_once(jobs)) > there:
        doubts.append(f"jobs that ended had {most:,} GPUs at once, more than the {there:,} of `gpus`: correct it")  # fmt: skip
    return jobs, tuple(doubts)


def _that_fit(jobs: pd.DataFrame, there: int) -> pd.DataFrame:
    """Without the running ones that began first, as many of them as are too many."""
    while _most_at_once(jobs) > there and jobs["is_running"].any():
        running = jobs[jobs["is_running"]]
        jobs = jobs.drop((running["end_s"] - running["elapsed_s"]).idxmin())
    return jobs


def _most_at_once(jobs: pd.DataFrame) -> int:
    ends, gpus = jobs["end_s"].to_numpy(float), jobs["gpus"].to_numpy(int)
    at_s = np.concatenate([ends, ends - jobs["elapsed_s"].to_numpy(float)])
    order = np.argsort(at_s, kind="stable")  # a job may begin as another ends
    return int(np.cumsum(np.concatenate([-gpus, gpus])[order]).max(initial=0))


def _shown(lost: pd.DataFrame) -> str:
    number = len(lost)
    names = ", ".join(map(str, lost["job"][:MOST_SHOWN])) + ", ..." * (number > MOST_SHOWN)
    return f"{number:,} job{'s' * (number != 1)} ({names}) still RUNNING"

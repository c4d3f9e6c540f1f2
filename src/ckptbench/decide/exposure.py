"""Failures on the clock, and the GPU-hours in which they came.

Failures within one restart of another count as one: training that is down cannot fail again. So the GPU-hours within one restart of a
failure are not at risk either, and what is left is the *time at risk*. (A counter with this dead time, which later failures do not make longer: Knoll,
*Radiation Detection and Measurement*, chapter 4, the non-paralyzable model.)
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ckptbench.decide import formulas

Floats = NDArray[np.float64]

RESTART_S = 600.0
"""Failures within so long count as one, unless the user says how long a restart takes. Slurm needs up to 300 s (SlurmdTimeout) to see that a node of a
broken rack is down, and a large job some minutes to start."""
FAILURE_STATES = ("NODE_FAIL", "BOOT_FAIL", "FAILED")
"""Slurm's states of jobs that failed. Every other job is time at risk alone."""
ENDS = (
    *FAILURE_STATES, "CANCELLED", "COMPLETED", "DEADLINE", "LAUNCH_FAILED", "OUT_OF_MEMORY", "PREEMPTED", "RECONFIG_FAIL", "REQUEUED",
    "RESIZING", "REVOKED", "SPECIAL_EXIT", "STOPPED", "SUSPENDED", "TIMEOUT",
)  # fmt: skip
"""Slurm's states in which a job no longer runs."""
TIMEOUT = "TIMEOUT"
"""The state of a job that its time limit ended."""
WILLED = ("CANCELLED", "COMPLETED", "RESIZING", "STOPPED", "SUSPENDED")
"""Of these, the states of jobs that nobody would count: they were done, or a person stopped them."""
OUTSIDE = "it is not between `from` and `to`: remove the line, or correct them"


PREEMPTIONS = re.compile(r"[\d,]+ PREEMPTED")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndsOfJobs:
    """Ends that strike a job as often whatever its GPUs: preemptions and time limits."""

    named: str
    """`2 PREEMPTED`."""
    number: int
    of: int
    """Ends in all, with the failures that come by GPU-hours."""
    gpus: float
    """Mean number of GPUs of a job that ran."""
    every_hours: float
    """Of a job, between two of them."""

    def factor(self, gpus: int) -> float:
        """Of the mean GPU-hours between two ends, for jobs of so many GPUs.

        `formulas.of_jobs` derives it.
        """
        return float(formulas.of_jobs(gpus, self.gpus, self.number, self.of))

    def announced(self, gpus: int) -> float | None:
        """The part of all ends of jobs of so many GPUs that are preemptions, which a scheduler announces. None where time limits are among `number`."""
        if not PREEMPTIONS.fullmatch(self.named):
            return None
        grown = gpus / self.gpus
        others = (self.of - self.number) * (
            1.0 if 1 / formulas.LIKE < grown < formulas.LIKE else grown
        )
        return self.number / (self.number + others)

    def said(self, gpus: int) -> str:
        """A sentence on that factor."""
        return f"{self.named}: counted per job, one in {self.every_hours:,.3g} h for your jobs of {self.gpus:,.0f} GPUs, and just as often on {gpus:,} GPUs"


@dataclass(frozen=True, slots=True, eq=False)
class FailureCount:
    """The failures of a log, those within one restart of another as one."""

    at_gpu_hours: Floats
    """Shape (failures,), rising: GPU-hours that were watched until each."""
    watched_gpu_hours: float
    risk_gpu_hours: float
    """Watched, but not within one restart of a failure."""
    found: int
    """Failures in the log: those that are merged too, but not the one with which a list begins."""
    is_of_failures_alone: bool = False
    """Whether the log is a table in which every job failed: the time of the others is not in it."""
    doubts: tuple[str, ...] = ()
    """Sentences on jobs of which the log cannot be right."""
    of_jobs: EndsOfJobs | None = None

    @property
    def failures(self) -> int:
        return len(self.at_gpu_hours)


@dataclass(frozen=True, slots=True, eq=False)
class Exposure:
    """Failures on the clock, and the GPU-hours that were watched until any time."""

    failed_s: Floats
    clock_s: Floats
    """Shape (points,), rising. Between two points equally many GPUs were watched."""
    gpu_hours: Floats
    """Shape (points,): watched until then; 0 first."""
    is_of_failures_alone: bool = False
    doubts: tuple[str, ...] = ()
    of_jobs: EndsOfJobs | None = None

    def counted(self, restart_s: float) -> FailureCount:
        kept: list[float] = []
        for at in sorted(self.failed_s):
            if not kept or at - kept[-1] > restart_s:
                kept.append(at)
        counted = np.array(kept)
        until, up = self._until(counted), self._until(counted + restart_s)
        total = float(self.gpu_hours[-1])
        begin_s = self.clock_s[0]  # the failure with which a list begins is where its time begins
        return FailureCount(
            until[counted > begin_s],
            total,
            total - float((up - until).sum()),
            int((self.failed_s > begin_s).sum()),
            self.is_of_failures_alone,
            self.doubts,
            self.of_jobs,
        )

    def _until(self, at_s: Floats) -> Floats:
        watched: Floats = np.interp(at_s, self.clock_s, self.gpu_hours)
        return watched

"""What has become of the jobs: results from files, the rest from one query a round."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from snakemake_interface_executor_plugins.logging import LoggerExecutorInterface
from submitit.core.core import Job

from .cluster import Cluster, JobState

RESULT_LATENCY_SECONDS = 30
"""How long the result of a job that ended may take to appear on a shared file system."""
UNKNOWN_SECONDS = 600
"""How long a scheduler may not know a job before it is taken for lost."""
GROWTH = 1.5
NEVER = "can never run"
"""What PBS says of a job that asks for more than there is."""


class Backoff:
    """Seconds between two rounds: short while things happen, longer while nothing does."""

    def __init__(self, shortest_seconds: float, longest_seconds: float) -> None:
        self._shortest = shortest_seconds
        self._longest = max(shortest_seconds, longest_seconds)
        self.seconds = shortest_seconds

    def reset(self) -> None:
        self.seconds = self._shortest

    def grow(self) -> None:
        self.seconds = min(self._longest, GROWTH * self.seconds)


@dataclass(frozen=True)
class Outcome:
    """A job that ended; `error` is None where it ended well."""

    job: Job[Any]
    error: str | None


class Poller:
    """Finds the jobs that ended, in rounds; counts its queries."""

    def __init__(
        self,
        cluster: Cluster,
        logger: LoggerExecutorInterface,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._logger = logger
        self._clock = clock
        self._since: dict[str, float] = {}
        """Since when a job is in a state that is given some time to change."""
        self._unanswered = 0
        self._hopeless: set[str] = set()
        """Jobs of which the scheduler has said that they can never run."""
        self.queries = 0

    def ended(self, jobs: Sequence[Job[Any]]) -> list[Outcome]:
        """Those of `jobs` that have ended since the last round."""
        outcomes, rest = self._by_result(jobs)
        if rest and self._query():
            outcomes += self._by_state(rest)
        for outcome in outcomes:
            self._since.pop(outcome.job.job_id, None)
            self._cluster.forget(outcome.job.job_id)
        return outcomes

    def _by_result(self, jobs: Sequence[Job[Any]]) -> tuple[list[Outcome], list[Job[Any]]]:
        results = self._cluster.results(jobs)
        outcomes = [Outcome(job, results[job.job_id]) for job in jobs if job.job_id in results]
        return outcomes, [job for job in jobs if job.job_id not in results]

    def _query(self) -> bool:
        if self._cluster.asks_scheduler:
            self.queries += 1
        if self._cluster.query():
            self._unanswered = 0
            return True
        self._unanswered += 1
        self._since.clear()
        self._logger.warning(
            f"{self._cluster.name} did not answer a status query ({self._unanswered} in a row). "
            "Jobs are left as they are; asking again."
        )
        return False

    def _by_state(self, jobs: Sequence[Job[Any]]) -> list[Outcome]:
        states = {job.job_id: self._cluster.state(job) for job in jobs}
        self._warn_of_hopeless(states)
        over = [job for job in jobs if states[job.job_id].ended]
        for job in jobs:
            if states[job.job_id].active:
                self._since.pop(job.job_id, None)
        lost = [
            job
            for job in jobs
            if not states[job.job_id].known and self._lasts(job, UNKNOWN_SECONDS)
        ]
        words = (
            f"left no result, and {self._cluster.name} has not known it for "
            f"{UNKNOWN_SECONDS // 60} minutes: its record may have been purged"
        )
        return [Outcome(job, words) for job in lost] + self._without_result(over, states)

    def _warn_of_hopeless(self, states: Mapping[str, JobState]) -> None:
        """Once a job: it would wait for ever, and the user with it."""
        for job_id, state in states.items():
            hopeless = not state.ended and NEVER in state.words.lower()
            if hopeless and job_id not in self._hopeless:
                self._hopeless.add(job_id)
                self._logger.warning(
                    f"{self._cluster.name} job {job_id} will not start: {state.words}"
                )

    def _without_result(self, jobs: list[Job[Any]], states: dict[str, JobState]) -> list[Outcome]:
        """Jobs that ended and left no result, once that is certain."""
        if not jobs:
            return []
        # A result may have come between the look for it and the query.
        outcomes, rest = self._by_result(jobs)
        queued = self._cluster.still_queued([job.job_id for job in rest]) if rest else set()
        for job in rest:
            state = states[job.job_id]
            if job.job_id in queued:
                self._since.pop(job.job_id, None)
                self._cluster.reopen(job.job_id)
            elif state.killed or self._lasts(job, RESULT_LATENCY_SECONDS):
                self._cluster.clear(job)
                outcomes.append(Outcome(job, f"ended without a result: {state.words}"))
        return outcomes

    def _lasts(self, job: Job[Any], seconds: float) -> bool:
        now = self._clock()
        return now - self._since.setdefault(job.job_id, now) >= seconds

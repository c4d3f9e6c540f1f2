"""What has become of the jobs: results from files, the rest from one query a round."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from snakemake_interface_executor_plugins.logging import LoggerExecutorInterface
from submitit.core.core import Job

from . import requeues
from .cluster import Cluster, JobState
from .tally import WAITING, Tally

RESULT_LATENCY_SECONDS = 30
"""How long the result of a job that ended may take to appear on a shared file system."""
UNKNOWN_SECONDS = 600
"""How long a scheduler may not know a job before it is taken for lost."""
GROWTH = 1.5
SHORTEST_POLL_SECONDS, LONGEST_POLL_SECONDS = 2.0, 30.0


class Backoff:
    """Seconds between two rounds: short while things happen, longer while nothing does."""

    def __init__(self, shortest_seconds: float, longest_seconds: float) -> None:
        self._shortest = shortest_seconds
        self._longest = max(shortest_seconds, longest_seconds)
        self.seconds = shortest_seconds

    @classmethod
    def of(cls, asked_seconds: float) -> "Backoff":
        """`asked_seconds`: Snakemake's `--seconds-between-status-checks`. A scheduler is not asked more often than every
        two seconds for long."""
        growing = max(
            SHORTEST_POLL_SECONDS, asked_seconds, min(LONGEST_POLL_SECONDS, 3 * asked_seconds)
        )
        shortest = max(0.1, min(SHORTEST_POLL_SECONDS, asked_seconds))
        return cls(shortest, growing)

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
        self._said: set[str] = set()
        """What was told once: notes of the cluster, and jobs that wait for a person."""
        self._tally = Tally(cluster, logger, clock)
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
        """Whether the scheduler answered. What is not answered counts for nothing: neither as an end, nor as a
        time without news of a job."""
        self.queries += 1
        try:
            self._cluster.query()
        except ConnectionError as error:
            self._unanswered += 1
            self._since.clear()
            if self._unanswered.bit_count() == 1:  # the 1st, 2nd, 4th, 8th...
                self._logger.warning(
                    f"{self._cluster.name} did not answer a status query ({self._unanswered} in a row): {error}. "
                    "Jobs continue; the query is repeated."
                )
            return False
        self._unanswered = 0
        return True

    def _by_state(self, jobs: Sequence[Job[Any]]) -> list[Outcome]:
        states = {job.job_id: self._cluster.state(job) for job in jobs}
        self._tally.note(states, requeues.noted(jobs))
        self._tell(states)
        for job_id, state in states.items():
            if state.active:
                self._since.pop(job_id, None)
        # A result may have come between the look for it and the query.
        outcomes, rest = self._by_result([job for job in jobs if not states[job.job_id].active])
        for job in rest:
            if words := self._verdict(job.job_id, states[job.job_id]):
                self._cluster.clear(job)
                outcomes.append(Outcome(job, words))
        return outcomes

    def _verdict(self, job_id: str, state: JobState) -> str:
        """Why a job without a result has failed; "" as long as that is not certain."""
        if not state.known:
            words = (
                f"left no result, and {self._cluster.name} has not known it for "
                f"{UNKNOWN_SECONDS // 60} minutes: its record may have been purged"
            )
            return words if self._lasts(job_id, UNKNOWN_SECONDS) else ""
        certain = state.killed or self._lasts(job_id, RESULT_LATENCY_SECONDS)
        return f"ended without a result: {state.words}" if certain else ""

    def _tell(self, states: Mapping[str, JobState]) -> None:
        self._warn_once(self._cluster.note)
        waiting: dict[str, list[str]] = {}
        for job_id, state in states.items():
            if state.remedy and f"{job_id} {state.remedy}" not in self._said:
                self._said.add(f"{job_id} {state.remedy}")
                waiting.setdefault(state.words, []).append(job_id)
        for words, job_ids in waiting.items():
            state = states[job_ids[0]]
            more = f" and {len(job_ids) - 1} more" if len(job_ids) > 1 else ""
            self._logger.warning(
                f"{self._cluster.name} job {job_ids[0]}{more} will not {'start' if state.word in WAITING else 'go on'} by "
                f"itself: {words}. {state.remedy}."
            )

    def _warn_once(self, text: str) -> None:
        if text and text not in self._said:
            self._said.add(text)
            self._logger.warning(text)

    def _lasts(self, job_id: str, seconds: float) -> bool:
        now = self._clock()
        return now - self._since.setdefault(job_id, now) >= seconds

"""Jobs of an earlier workflow that was killed: taken back instead of submitted twice."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any

from snakemake_interface_executor_plugins.logging import LoggerExecutorInterface
from submitit.core.core import Job

from .cluster import Cluster
from .registry import Entry, Registry
from .submission import Request

CLOCK_TOLERANCE_SECONDS = 10
"""How far the clocks of the file server and of this machine may be apart."""


class _Left(Enum):
    """What an earlier workflow left."""

    ACTIVE = auto()
    FINISHED = auto()
    NOTHING = auto()


@dataclass(frozen=True)
class _Candidate:
    request: Request
    entry: Entry
    job: Job[Any]

    def is_same_work(self) -> bool:
        """The same job on the same input; what it runs on may have changed in the meantime."""
        newest = max(map(_modified_at, self.request.job.input), default=0.0)
        return (
            self.entry.identity == self.request.identity
            and newest <= self.entry.submitted_at + CLOCK_TOLERANCE_SECONDS
        )


class Adopter:
    """Sorts out which requests an earlier workflow's jobs already serve."""

    def __init__(
        self,
        registry: Registry,
        cluster: Cluster,
        logger: LoggerExecutorInterface,
        on_adopted: Callable[[Sequence[tuple[Request, Job[Any]]]], None],
        *,
        finished_too: bool,
    ) -> None:
        self._registry = registry
        self._cluster = cluster
        self._logger = logger
        self._on_adopted = on_adopted
        self._finished_too = finished_too

    def remaining(self, requests: list[Request]) -> list[Request]:
        """The requests that no earlier job serves; the others are reported as adopted."""
        candidates = self._candidates(requests)
        if not candidates:
            return requests
        left = self._look(candidates)
        adopted, outdated = [], []
        for candidate in candidates:
            what = left[candidate.job.job_id]
            if what is not _Left.NOTHING and candidate.is_same_work():
                adopted.append(candidate)
            elif what is _Left.ACTIVE:
                outdated.append(candidate)
        self._cancel(outdated)
        taken = {id(candidate.request) for candidate in adopted}
        self._let_go(candidate for candidate in candidates if id(candidate.request) not in taken)
        self._on_adopted([(candidate.request, candidate.job) for candidate in adopted])
        return [request for request in requests if id(request) not in taken]

    def _candidates(self, requests: list[Request]) -> list[_Candidate]:
        found = ((request, self._registry.take(request.identity)) for request in requests)
        return [
            _Candidate(request, entry, self._cluster.job(Path(entry.folder), entry.job_id))
            for request, entry in found
            if entry is not None
        ]

    def _look(self, candidates: list[_Candidate]) -> dict[str, _Left]:
        """A scheduler that does not answer leaves jobs for active: they are polled later on."""
        jobs = [candidate.job for candidate in candidates]
        results = self._cluster.results(jobs)
        rest = [job for job in jobs if job.job_id not in results]
        answered = not rest or self._cluster.query()
        queued = self._cluster.still_queued([job.job_id for job in rest]) if rest else set()
        left = {}
        for candidate in candidates:
            job = candidate.job
            if job.job_id in results:
                complete = results[job.job_id] is None and self._is_complete(candidate)
                left[job.job_id] = _Left.FINISHED if complete else _Left.NOTHING
            else:
                state = self._cluster.state(job)
                active = job.job_id in queued or (state.known and not state.ended)
                left[job.job_id] = _Left.ACTIVE if active or not answered else _Left.NOTHING
        return left

    def _is_complete(self, candidate: _Candidate) -> bool:
        return self._finished_too and all(
            Path(str(file)).exists() for file in candidate.request.job.output
        )

    def _cancel(self, outdated: list[_Candidate]) -> None:
        """They would write the same files as the jobs that take their place."""
        if not outdated:
            return
        ids = ", ".join(candidate.job.job_id for candidate in outdated)
        self._logger.warning(
            f"Cancelling {ids} of an earlier workflow: the rule, its resources or its input have "
            "changed since."
        )
        for error in self._cluster.cancel([candidate.job for candidate in outdated]):
            self._logger.warning(f"Cancelling an outdated job failed: {error}")

    def _let_go(self, candidates: Iterable[_Candidate]) -> None:
        ids = [candidate.job.job_id for candidate in candidates]
        for job_id in ids:
            self._cluster.forget(job_id)
        self._registry.settle(ids)


def _modified_at(path: object) -> float:
    try:
        return Path(str(path)).stat().st_mtime
    except OSError:
        return 0.0

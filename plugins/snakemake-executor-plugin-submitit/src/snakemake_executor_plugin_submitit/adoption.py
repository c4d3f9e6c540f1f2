"""Jobs of an earlier workflow that was killed: taken back instead of submitted twice."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from snakemake_interface_executor_plugins.logging import LoggerExecutorInterface
from submitit.core.core import Job

from .cluster import Cluster
from .registry import Entry, Registry
from .submission import Request

CLOCK_TOLERANCE_SECONDS = 10
"""How far the clocks of the file server and of this machine may be apart."""


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A request, and the job that an earlier workflow submitted for the same outputs."""

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
        active, finished = self._look(candidates)
        adopted = [each for each in active + finished if each.is_same_work()]
        self._cancel([each for each in active if each not in adopted])
        self._let_go(each for each in candidates if each not in adopted)
        self._on_adopted([(each.request, each.job) for each in adopted])
        taken = {id(each.request) for each in adopted}
        return [request for request in requests if id(request) not in taken]

    def _candidates(self, requests: list[Request]) -> list[_Candidate]:
        found = ((request, self._registry.take(request.identity)) for request in requests)
        return [
            _Candidate(request, entry, self._cluster.job(Path(entry.folder), entry.job_id))
            for request, entry in found
            if entry is not None
        ]

    def _look(self, candidates: list[_Candidate]) -> tuple[list[_Candidate], list[_Candidate]]:
        """Those whose jobs may still run, and those whose jobs have made all of their output.

        A scheduler that does not answer leaves jobs for active: they are polled later on.
        """
        results = self._cluster.results([each.job for each in candidates])
        ended = [each for each in candidates if each.job.job_id in results]
        finished = [
            each for each in ended if results[each.job.job_id] is None and self._is_complete(each)
        ]
        rest = [each for each in candidates if each not in ended]
        return self._active(rest), finished

    def _active(self, candidates: list[_Candidate]) -> list[_Candidate]:
        """Two answers must say that a job is over: the end of one may have been cut off unnoticed."""
        over = candidates
        try:
            for _ in range(2):
                if over:
                    self._cluster.query()
                    over = [each for each in over if not self._cluster.state(each.job).active]
        except ConnectionError:
            return candidates
        return [each for each in candidates if each not in over]

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

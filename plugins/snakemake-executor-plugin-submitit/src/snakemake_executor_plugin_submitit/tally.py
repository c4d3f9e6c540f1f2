"""How many jobs wait and run, and why some went back to the queue: a line now and then."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from snakemake_interface_executor_plugins.logging import LoggerExecutorInterface

from .cluster import Cluster, JobState
from .requeues import Requeue

SECONDS = 300
"""Between two lines."""
WAITING = frozenset(
    {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
)
WORDS = {
    "preempted": "pre-empted or told to stop",
    "limit": "at a time limit",
    "lost": "after the loss of a node",
    "unknown": "for a reason that is not known",
}


class Tally:
    """Says every few minutes how many jobs wait and run, and how many went back to the queue so far; at once, which nodes are lost."""

    def __init__(
        self, cluster: Cluster, logger: LoggerExecutorInterface, clock: Callable[[], float]
    ) -> None:
        self._cluster = cluster
        self._logger = logger
        self._clock = clock
        self._said_at = clock()
        self._running: dict[str, str] = {}
        """The nodes of each job that ran in the last round, in the scheduler's words."""
        self._seen: Counter[str] = Counter()
        """How often a job that ran was seen to wait again."""
        self._read: Counter[str] = Counter()
        """How many notes of a job were counted."""
        self._asked: Counter[str] = Counter()
        """How many of its requeues the scheduler explained."""
        self._requeued: Counter[str] = Counter()
        """By reason."""

    def note(self, states: Mapping[str, JobState], notes: Mapping[str, Sequence[Requeue]]) -> None:
        """`notes`: what jobs noted of themselves."""
        active = {job_id: state for job_id, state in states.items() if state.active}
        waiting = {job_id for job_id, state in active.items() if state.word in WAITING}
        for job_id in active.keys() & notes.keys():
            for requeue in notes[job_id][self._read[job_id] :]:
                self._read[job_id] += 1
                self._count(job_id, requeue)
        self._explain({job_id: self._running[job_id] for job_id in waiting & self._running.keys()})
        self._running = {job_id: active[job_id].nodes for job_id in active.keys() - waiting}
        if active and self._clock() - self._said_at >= SECONDS:
            self._said_at = self._clock()
            self._logger.info(
                f"{self._cluster.name}: {len(waiting)} jobs wait, {len(self._running)} run; {self._words()}."
            )

    def _explain(self, returned: Mapping[str, str]) -> None:
        """Jobs that ran on these nodes in the last round, and wait now. Those that noted nothing were sent back by the scheduler."""
        self._seen.update(returned.keys())
        without_note = {
            job_id: nodes
            for job_id, nodes in returned.items()
            if self._seen[job_id] > self._read[job_id] + self._asked[job_id]
        }
        if without_note:
            found = self._cluster.requeues(without_note)
            for job_id in without_note:
                self._asked[job_id] += 1
                self._count(job_id, found.get(job_id, Requeue("unknown")))

    def _count(self, job_id: str, requeue: Requeue) -> None:
        self._requeued[requeue.why] += 1
        if requeue.why == "lost":
            self._logger.warning(
                f"{self._cluster.name} job {job_id} lost {', '.join(requeue.nodes) or 'a node'} and went back to the queue."
            )

    def _words(self) -> str:
        counts = [
            f"{self._requeued[why]} {words}" for why, words in WORDS.items() if self._requeued[why]
        ]
        return f"back in the queue so far: {', '.join(counts) or 'none'}"

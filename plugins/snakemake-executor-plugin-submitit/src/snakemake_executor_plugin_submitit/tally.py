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
    "preempted": "preempted or asked to stop",
    "limit": "at a time limit",
    "lost": "after the loss of a node",
    "unknown": "by the scheduler",
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
        self._running: set[str] = set()
        """The jobs that ran in the last round."""
        self._seen: Counter[str] = Counter()
        """How often a job that ran was seen to wait again."""
        self._read: Counter[str] = Counter()
        """How many notes of a job were counted."""
        self._requeued: Counter[str] = Counter()
        """By the reason that the job noted."""

    def note(self, states: Mapping[str, JobState], notes: Mapping[str, Sequence[Requeue]]) -> None:
        """`notes`: what jobs noted of themselves."""
        active = {job_id: state for job_id, state in states.items() if state.active}
        waiting = {job_id for job_id, state in active.items() if state.word in WAITING}
        for job_id in active.keys() & notes.keys():
            for requeue in notes[job_id][self._read[job_id] :]:
                self._read[job_id] += 1
                self._count(job_id, requeue)
        self._seen.update(waiting & self._running)
        self._running = active.keys() - waiting
        if active and self._clock() - self._said_at >= SECONDS:
            self._said_at = self._clock()
            self._logger.info(
                f"{self._cluster.name}: {len(waiting)} jobs waiting, {len(self._running)} running; {self._words()}."
            )

    def _count(self, job_id: str, requeue: Requeue) -> None:
        self._requeued[requeue.why] += 1
        if requeue.why == "lost":
            self._logger.warning(
                f"{self._cluster.name} job {job_id} lost {', '.join(requeue.nodes) or 'a node'} and was requeued."
            )

    def _words(self) -> str:
        without_note = (self._seen - self._read).total()
        requeued = self._requeued + Counter({"unknown": without_note})
        counts = [f"{requeued[why]} {words}" for why, words in WORDS.items() if requeued[why]]
        return f"back in the queue so far: {', '.join(counts) or 'none'}"

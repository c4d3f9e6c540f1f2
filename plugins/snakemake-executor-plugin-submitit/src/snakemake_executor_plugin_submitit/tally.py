"""How many jobs wait and run: a line now and then."""

from collections.abc import Callable, Mapping

from snakemake_interface_executor_plugins.logging import LoggerExecutorInterface

from .cluster import JobState

SECONDS = 300
"""Between two lines."""
WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"})


class Tally:
    """Says every few minutes how many jobs wait and run, and how many went back to the queue so far."""

    def __init__(
        self, name: str, logger: LoggerExecutorInterface, clock: Callable[[], float]
    ) -> None:
        self._name = name
        self._logger = logger
        self._clock = clock
        self._said_at = clock()
        self._running: set[str] = set()
        self._requeued = 0

    def note(self, states: Mapping[str, JobState]) -> None:
        active = {job_id: state for job_id, state in states.items() if state.active}
        waiting = {job_id for job_id, state in active.items() if state.word in WAITING}
        self._requeued += len(waiting & self._running)
        self._running = active.keys() - waiting
        if active and self._clock() - self._said_at >= SECONDS:
            self._said_at = self._clock()
            self._logger.info(
                f"{self._name}: {len(waiting)} jobs wait, {len(self._running)} run; "
                f"{self._requeued} went back to the queue so far (a time limit, pre-emption, a lost node)."
            )

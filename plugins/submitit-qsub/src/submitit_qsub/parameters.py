"""What a submission asks for, on every scheduler with a qsub."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import ClassVar

from submitit_qsub import quoting


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """The first eight are submitit's own, shared by every cluster; the others are prefixed
    with the name of the cluster in `submitit.AutoExecutor`, as `pbs_queue`."""

    words: ClassVar[tuple[str, ...]] = ("queue", "account")
    """Each is one word of the submission file."""
    lines: ClassVar[tuple[str, ...]] = ("python",)
    """Each is one line."""
    lists: ClassVar[tuple[str, ...]] = ("extra",)
    """Each is a list of lines."""

    name: str = "submitit"
    timeout_min: float = 5
    nodes: int = 1
    tasks_per_node: int = 1
    """Tasks of submitit, each with a result: always one, on the first node."""
    cpus_per_task: int = 1
    gpus_per_node: int = 0
    mem_gb: float | None = None
    """Per node."""
    stderr_to_stdout: bool = False

    processes_per_node: int = 1
    """Processes that the function itself starts on each node."""
    queue: str | None = None
    account: str | None = None
    account_option: str = "-P"
    """The option of qsub that takes the account: a project (-P), TSUBAME's group (-g)..."""
    stop_seconds: float = 90
    """How long before the time limit the job is told to stop; at most half of the limit; 0: not at all."""
    setup: Sequence[str] = ()
    extra: Sequence[str] = ()
    """More options of qsub, each a line as it would stand in the submission file."""
    array_parallelism: int | None = None
    """How many jobs of an array may run at once; None: as many as fit."""
    max_nodes: Mapping[str, int] = field(default_factory=dict)
    """How many nodes a job may have, by its queue. Others have no limit."""
    python: str = shlex.quote(sys.executable)
    """The command that starts Python on the host, quoted for the shell."""

    def __post_init__(self) -> None:
        """Raises ValueError for what would be another line or another word of the submission file, and for what is not more than 0."""
        for name in (*self.lists, "setup"):
            if isinstance(value := getattr(self, name), str):
                object.__setattr__(self, name, (value,))
        quoting.option(str(self.account_option), "account_option")
        for name in self.words:
            if text := getattr(self, name):
                quoting.word(str(text), name)
        for name in self.lines:
            if text := getattr(self, name):
                quoting.line(str(text), name)
        for name in self.lists:
            for text in getattr(self, name):
                quoting.line(str(text), name)
        for name in (
            "timeout_min",
            "nodes",
            "tasks_per_node",
            "processes_per_node",
            "cpus_per_task",
        ):
            number = getattr(self, name)
            if not isinstance(number, int | float):
                raise ValueError(f"{name} is {number!r}: it must be a number.")
            if number <= 0:
                raise ValueError(f"{name} is {number!r}: it must be more than 0.")
        self._check_nodes()
        if self.tasks_per_node != 1:
            raise ValueError(
                f"tasks_per_node is {self.tasks_per_node}: this executor's job is one task of submitit, with one "
                "result. Use processes_per_node to reserve cores for processes that the function itself starts."
            )

    def _check_nodes(self) -> None:
        given = self.max_nodes
        if not isinstance(given, Mapping) or not all(
            isinstance(most, int) and most > 0 for most in given.values()
        ):
            raise ValueError(
                f"max_nodes is {given!r}: it must be a mapping from queues to numbers of nodes."
            )
        most = given.get(str(self.queue))
        if most is not None and self.nodes > most:
            raise ValueError(
                f"{self.nodes} nodes, but a job in the queue {self.queue} has at most {most} (max_nodes): request fewer, or "
                "another queue."
            )

    @property
    def cpus_per_node(self) -> int:
        return self.processes_per_node * self.cpus_per_task

    @classmethod
    def names(cls) -> set[str]:
        return {field.name for field in fields(cls)}

    @property
    def limit_s(self) -> int:
        return round(60 * self.timeout_min)

    @property
    def stop_after_s(self) -> int | None:
        """When the job is told to stop; None: never."""
        lead_s = min(float(self.stop_seconds), self.limit_s / 2)
        return self.limit_s - round(lead_s) if lead_s > 0 else None

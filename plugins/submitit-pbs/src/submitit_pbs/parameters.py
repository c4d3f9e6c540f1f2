"""What a submission asks for."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields

from submitit_pbs import quoting


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """The first eight are submitit's own, shared by every cluster; the others are prefixed
    with `pbs_` in `submitit.AutoExecutor`."""

    name: str = "submitit"
    timeout_min: float = 5
    nodes: int = 1
    """Chunks of the selection: one a node."""
    tasks_per_node: int = 1
    """MPI processes that the job itself starts; submitit's task is always one."""
    cpus_per_task: int = 1
    gpus_per_node: int = 0
    mem_gb: float | None = None
    """Per node."""
    stderr_to_stdout: bool = False

    queue: str | None = None
    account: str | None = None
    account_option: str = "-P"
    """The option that takes the account: a project (-P), an account name (-A)..."""
    chunk: str | None = None
    """What stands after `select=N:`. None: worked out from the numbers above; empty: nothing,
    where the queue fixes what a node is, as on ABCI 3.0."""
    place: str | None = None
    """None: a node for each chunk (scatter), unless there is one only or the queue says what a
    node is."""
    stop_seconds: float = 90
    """How long before the limit (walltime) the job tells itself to stop; at most half of the
    limit; 0: not at all."""
    setup: Sequence[str] = ()
    extra: Sequence[str] = ()
    """More options of qsub, each a line as it would stand after `#PBS`."""
    array_parallelism: int | None = None
    """How many subjobs of an array may run at once (from version 2020.1); None: all that fit."""
    python: str = shlex.quote(sys.executable)
    """The command that starts Python on the host, quoted for the shell."""

    def __post_init__(self) -> None:
        for name in ("setup", "extra"):
            if isinstance(lines := getattr(self, name), str):
                object.__setattr__(self, name, (lines,))
        self._check_text()
        if self.timeout_min <= 0 or self.nodes < 1:
            raise ValueError(
                f"timeout_min is {self.timeout_min} and nodes {self.nodes}: a job needs some of both."
            )

    def _check_text(self) -> None:
        """Raises ValueError for what would be another line or another word of the submission file."""
        for name in ("queue", "account"):
            if text := getattr(self, name):
                quoting.word(str(text), name)
        for name in ("chunk", "place", "python"):
            if text := getattr(self, name):
                quoting.line(str(text), name)
        quoting.option(str(self.account_option), "account_option")
        for text in self.extra:
            quoting.line(str(text), "extra")

    @classmethod
    def names(cls) -> set[str]:
        return {field.name for field in fields(cls)}

    @property
    def limit_s(self) -> int:
        return round(60 * self.timeout_min)

    @property
    def stop_after_s(self) -> int | None:
        """When the job tells itself to stop; None: never."""
        lead_s = min(float(self.stop_seconds), self.limit_s / 2)
        return self.limit_s - round(lead_s) if lead_s > 0 else None

    @property
    def walltime(self) -> str:
        minutes, seconds = divmod(self.limit_s, 60)
        return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"

    @property
    def placement(self) -> str | None:
        """What stands after `place=`. Left to itself PBS may put all chunks on one node."""
        several = self.nodes > 1 and self.chunk != ""
        return self.place or ("scatter" if several else None)

    @property
    def select(self) -> str:
        chunk = self._computed_chunk() if self.chunk is None else self.chunk
        return f"{self.nodes}:{chunk}" if chunk else f"{self.nodes}"

    def _computed_chunk(self) -> str:
        cpus = self.tasks_per_node * self.cpus_per_task
        parts = [f"ncpus={cpus}", f"mpiprocs={self.tasks_per_node}"]
        if self.gpus_per_node:
            parts.append(f"ngpus={self.gpus_per_node}")
        if self.mem_gb is not None:
            parts.append(f"mem={round(1024 * self.mem_gb)}mb")
        return ":".join(parts)

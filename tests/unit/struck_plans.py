"""A run that is struck by failures, as far as its launcher sees it: which ranks have met, and what has struck them."""

from __future__ import annotations

from ckptbench.failures.recovery.contract import Loss
from ckptbench.run.events import Regroup, Start, Strike
from ckptbench.run.failure import Failure
from ckptbench.run.layout import strikes_path, trace_path
from ckptbench.run.plan import Plan
from ckptbench.run.recorder import Recorder

FAILURES = (Failure(step=4, rank=1), Failure(step=6, rank=2), Failure(step=8, node=0))


def met(plan: Plan, *ranks: int) -> None:
    for rank in ranks:
        start = Start(
            attempt=plan.attempt, rank=rank, world_size=3, host="here", pid=1, device="cpu",
            monotonic_ns=1, unix_ns=1, versions={},
        )  # fmt: skip
        recorder = Recorder(trace_path(plan.run_folder, rank))
        recorder.write(start)
        recorder.close()


def regrouped(plan: Plan, *ranks: int) -> None:
    for rank in ranks:
        recorder = Recorder(trace_path(plan.run_folder, rank))
        recorder.write(Regroup(step=4, reached=4, noticed_ns=1, agreed_ns=2, ready_ns=3, bytes=0))
        recorder.close()


def struck(plan: Plan, *failures: int, kind: str = "kill") -> None:
    recorder = Recorder(strikes_path(plan.run_folder, 0))
    for failure in failures:
        strike = Strike(failure=failure, kind=kind, attempt=1, monotonic_ns=1, unix_ns=failure)
        recorder.write(strike)
    recorder.close()


def loss(*ranks: int, left: tuple[int, ...] = (0,)) -> Loss:
    return Loss(ranks=ranks, how="died", left=left)

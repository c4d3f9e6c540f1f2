"""The end of what a rank has shared with the process that wrote for it."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from ckptbench.strategies.pytorch.writing_process import end_sharing


def test_a_process_that_multiprocessing_has_started_leaves_its_parents_tracker_alone() -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        pool.submit(end_sharing).result(timeout=60)
        # The parent's own goes on: it would raise where the semaphores of another pool cannot be registered.
        with ProcessPoolExecutor(1, get_context("spawn")) as other:
            assert other.submit(int).result(timeout=60) == 0

"""What ranks agree on through the launcher: all stop after one and the same step, and all have the values of all."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from control_links import PATIENCE_S, MakeServer, close, open_links, wait_for

from ckptbench.run.control.link import Link
from tests.study.selection import FULL

ENDLESS = 20_000
"""Steps of a training that is stopped long before its end."""


def train(link: Link, steps: int, barrier: threading.Barrier, speed: Callable[[], float]) -> int:
    """Steps that all ranks must make together, as averaging asks; returns how many were made."""
    for step in range(1, steps + 1):
        time.sleep(speed())
        if not link.may_enter(step):
            link.tell_stopped(step - 1)
            return step - 1
        barrier.wait(PATIENCE_S)
    return steps


@pytest.mark.parametrize("seed", range(5 if FULL else 1))
def test_asked_at_any_moment_all_ranks_stop_after_the_same_step(
    make_server: MakeServer, seed: int
) -> None:
    randomness = random.Random(seed)
    ranks = 4
    server = make_server(*"a" * ranks)
    links = open_links(server, *"a" * ranks)
    barrier = threading.Barrier(ranks)
    with ThreadPoolExecutor(ranks) as pool:
        made = [
            pool.submit(train, link, ENDLESS, barrier, lambda: randomness.uniform(0, 0.004))
            for link in links
        ]
        time.sleep(randomness.uniform(0, 0.2))
        server.ask_to_stop()
        stopped = {each.result(PATIENCE_S) for each in made}
    assert len(stopped) == 1
    assert stopped == {server.stopped_at}
    assert stopped != {ENDLESS}
    close(links)


def test_a_run_that_ends_first_is_not_stopped(make_server: MakeServer) -> None:
    server = make_server("a")
    (link,) = open_links(server, "a")
    assert train(link, 5, threading.Barrier(1), lambda: 0) == 5
    server.ask_to_stop()
    wait_for(lambda: link._asked)
    assert link.may_enter(5)
    assert server.stopped_at is None
    close([link])


def test_ranks_gather_values_of_all_in_the_order_of_the_ranks(make_server: MakeServer) -> None:
    server = make_server(*"abc")
    links = open_links(server, *"abc")
    with ThreadPoolExecutor(6) as pool:
        for _ in range(2):  # a name can be used again
            late = [pool.submit(link.gather, "port", n) for n, link in enumerate(links)]
            other = [pool.submit(link.gather, "x", {"of": [n]}) for n, link in enumerate(links)]
            assert [each.result(PATIENCE_S) for each in late] == [[0, 1, 2]] * 3
            of_all = [{"of": [0]}, {"of": [1]}, {"of": [2]}]
            assert [each.result(PATIENCE_S) for each in other] == [of_all] * 3
    close(links)


def test_a_name_cannot_be_used_twice_at_a_time(make_server: MakeServer) -> None:
    """The values of the first use would never come back."""
    server = make_server("a", "b")
    first, second = open_links(server, "a", "b")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(first.gather, "port", 1)
        wait_for(lambda: server._ranks[0].given)
        with pytest.raises(ValueError, match="port is being gathered"):
            first.gather("port", 2)
        assert second.gather("port", 3) == waiting.result(PATIENCE_S) == [1, 3]
    close([first, second])


def test_a_value_comes_back_only_when_all_ranks_have_given_theirs(make_server: MakeServer) -> None:
    server = make_server("a", "b")
    first, second = open_links(server, "a", "b")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(first.gather, "port", 1)
        wait_for(lambda: server._ranks[0].given)
        assert not waiting.done()
        second.gather("port", 2)
        assert waiting.result(PATIENCE_S) == [1, 2]
    close([first, second])

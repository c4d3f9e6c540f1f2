"""The line between the launcher and its ranks: all come up, and all stop after one and the same step."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ckptbench.allocation import seats_of
from ckptbench.control import ControlServer
from ckptbench.errors import LaunchError
from ckptbench.link import Link, shut

SOURCE = Path(__file__).resolve().parents[2] / "src"
MakeServer = Callable[..., ControlServer]


@pytest.fixture
def make_server() -> Iterator[MakeServer]:
    servers = []

    def make(*nodes: str) -> ControlServer:
        server = ControlServer(seats_of(list(nodes)), host="127.0.0.1")
        server.serve()
        servers.append(server)
        return server

    yield make
    for server in servers:
        server.close()


def open_link(server: ControlServer, rank: int, node: str, device: str = "cpu") -> Link:
    link = Link.open(server.address, server.token, rank=rank, node=node)
    link.meet(rank=rank, node=node, device=device)
    return link


def open_links(server: ControlServer, *nodes: str) -> list[Link]:
    """One for each rank; a rank returns only when all have come."""
    with ThreadPoolExecutor(len(nodes)) as pool:
        opened = [pool.submit(open_link, server, rank, node) for rank, node in enumerate(nodes)]
        return [each.result(10) for each in opened]


def close(links: list[Link]) -> None:
    for link in links:
        link.close()


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline, "waited 5 s"
        time.sleep(0.005)


def test_ranks_learn_the_addresses_of_all_when_all_have_come(make_server: MakeServer) -> None:
    server = make_server("a", "b", "b")
    assert [seat.rank for seat in server.missing] == [0, 1, 2]
    links = open_links(server, "a", "b", "b")
    assert server.missing == []
    assert len({link.addresses for link in links}) == 1
    assert len(set(links[0].addresses)) == 3
    assert all(address.startswith("127.0.0.1:") for address in links[0].addresses)
    close(links)


@pytest.mark.parametrize(
    ("hello", "problem"),
    [
        ({"rank": 0, "node": "c"}, "rank 0 came up on c, it was meant for a"),
        ({"rank": 2, "node": "a"}, "rank 2 came up on a, but the run has 2 ranks"),
    ],
)
def test_a_rank_that_comes_up_elsewhere_is_a_problem(
    make_server: MakeServer, hello: dict[str, object], problem: str
) -> None:
    server = make_server("a", "b")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(open_link, server, **hello)  # type: ignore[arg-type]
        wait_for(lambda: server._problem)
        with pytest.raises(LaunchError, match=problem):
            server.raise_if_misplaced()
        server.close()
        with pytest.raises(LaunchError, match="hung up"):
            waiting.result(5)


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        ((0, "0"), "rank 0 came up twice, on a and a"),
        ((1, "0"), "ranks 0 and 1 share GPU 0 of a"),
    ],
)
def test_two_ranks_never_share_a_number_or_a_gpu(
    make_server: MakeServer, second: tuple[int, str], problem: str
) -> None:
    server = make_server("a", "a")
    with ThreadPoolExecutor(2) as pool:
        pool.submit(open_link, server, 0, "a", "0")
        wait_for(lambda: len(server.missing) == 1)
        pool.submit(open_link, server, second[0], "a", second[1])
        wait_for(lambda: server._problem)
        with pytest.raises(LaunchError, match=problem):
            server.raise_if_misplaced()
        server.close()


def test_the_same_gpu_number_on_two_nodes_is_two_gpus(make_server: MakeServer) -> None:
    server = make_server("a", "b")
    with ThreadPoolExecutor(2) as pool:
        links = [pool.submit(open_link, server, n, node, "0") for n, node in enumerate("ab")]
        close([link.result(5) for link in links])
    server.raise_if_misplaced()


def test_a_stranger_is_not_a_rank(make_server: MakeServer) -> None:
    server = make_server("a")
    host, _, port = server.address.partition(":")
    with socket.create_connection((host, int(port)), 5) as stranger:
        stranger.sendall(json.dumps({"token": "guessed", "rank": 0}).encode() + b"\n")
        assert stranger.recv(100) == b""
    assert len(server.missing) == 1


def test_a_launcher_that_cannot_be_reached_is_one_error() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(
            LaunchError, match=rf"rank 3 on n1 cannot reach its launcher at {address}"
        ):
            Link.open(address, "t", rank=3, node="n1")


def train(link: Link, steps: int, barrier: threading.Barrier, speed: Callable[[], float]) -> int:
    """Steps that all ranks must make together, as averaging asks; returns how many were made."""
    for step in range(1, steps + 1):
        time.sleep(speed())
        if not link.may_enter(step):
            link.tell_stopped(step - 1)
            return step - 1
        barrier.wait(10)
    return steps


@pytest.mark.parametrize("seed", range(5))
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
            pool.submit(train, link, 500, barrier, lambda: randomness.uniform(0, 0.004))
            for link in links
        ]
        time.sleep(randomness.uniform(0, 0.2))
        server.ask_to_stop()
        stopped = {each.result(20) for each in made}
    assert len(stopped) == 1
    assert stopped == {server.stopped_at}
    assert stopped != {500}
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


def test_a_rank_ends_when_its_launcher_is_gone(make_server: MakeServer) -> None:
    server = make_server("a")
    code = (
        "import sys, time; from ckptbench.link import Link;"
        f"link = Link.open({server.address!r}, {server.token!r}, rank=0, node='a');"
        "link.meet(rank=0, node='a', device='cpu'); time.sleep(60)"
    )
    rank = subprocess.Popen(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(SOURCE)}, stderr=subprocess.PIPE
    )
    wait_for(lambda: not server.missing)
    server.close()
    _, said = rank.communicate(timeout=10)
    assert rank.returncode == 1
    assert b"the launcher is gone" in said


def test_a_rank_that_says_goodbye_is_not_lost_and_one_that_does_not_is(
    make_server: MakeServer,
) -> None:
    server = make_server("a", "a")
    links = open_links(server, "a", "a")
    links[0].close()
    links[1]._closing = True  # or its listener would end this process, as it should a rank's
    shut(links[1]._connection)
    wait_for(lambda: server.lost == [1])
    wait_for(lambda: not server._lines)
    assert server.lost == [1]


def test_a_rank_that_dies_before_it_has_come_up_is_lost(make_server: MakeServer) -> None:
    server = make_server("a", "a")
    shut(Link.open(server.address, server.token, rank=1, node="a")._connection)
    wait_for(lambda: server.lost == [1])
    assert len(server.missing) == 2

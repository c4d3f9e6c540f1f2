"""The line between the launcher and its ranks: all come up, and all stop after one and the same step."""

from __future__ import annotations

import json
import random
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from ckptbench.errors import LaunchError
from ckptbench.world.control import ControlServer
from ckptbench.world.link import Link, shut
from ckptbench.world.seats import seats_of

SOURCE = Path(__file__).resolve().parents[2] / "src"
MakeServer = Callable[..., ControlServer]
PATIENCE_S = 300
"""For what must come. It costs nothing where it comes, and a machine under load may need it."""
ENDLESS = 20_000
"""Steps of a training that is stopped long before its end."""


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
        return [each.result(PATIENCE_S) for each in opened]


def close(links: list[Link]) -> None:
    for link in links:
        link.close()


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S} s"
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
            waiting.result(PATIENCE_S)


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
        close([link.result(PATIENCE_S) for link in links])
    server.raise_if_misplaced()


def test_a_stranger_is_not_a_rank(make_server: MakeServer) -> None:
    server = make_server("a")
    host, _, port = server.address.partition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as stranger:
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
        barrier.wait(PATIENCE_S)
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
        wait_for(lambda: server._agreements.given)
        with pytest.raises(ValueError, match="port is being gathered"):
            first.gather("port", 2)
        assert second.gather("port", 3) == waiting.result(PATIENCE_S) == [1, 3]
    close([first, second])


def test_a_value_comes_back_only_when_all_ranks_have_given_theirs(make_server: MakeServer) -> None:
    server = make_server("a", "b")
    first, second = open_links(server, "a", "b")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(first.gather, "port", 1)
        wait_for(lambda: server._agreements.given)
        assert not waiting.done()
        second.gather("port", 2)
        assert waiting.result(PATIENCE_S) == [1, 2]
    close([first, second])


def test_a_rank_ends_when_its_launcher_is_gone(make_server: MakeServer) -> None:
    server = make_server("a")
    code = (
        "import sys, time; from ckptbench.world.link import Link;"
        f"link = Link.open({server.address!r}, {server.token!r}, rank=0, node='a');"
        "link.meet(rank=0, node='a', device='cpu'); time.sleep(600)"
    )
    rank = subprocess.Popen(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(SOURCE)}, stderr=subprocess.PIPE
    )
    wait_for(lambda: not server.missing)
    server.close()
    _, said = rank.communicate(timeout=PATIENCE_S)
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


def call(server: ControlServer) -> socket.socket:
    host, _, port = server.address.partition(":")
    return socket.create_connection((host, int(port)), PATIENCE_S)


def said(*messages: dict[str, object]) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def hello(server: ControlServer, rank: int, node: str, **fields: object) -> bytes:
    """What a rank says first."""
    usual = {"device": "cpu", "address": "127.0.0.1:1", "launcher": "127.0.0.1"}
    return said(
        {"token": server.token, "rank": rank}, {"rank": rank, "node": node, **usual, **fields}
    )


def test_many_ranks_need_one_thread(make_server: MakeServer) -> None:
    nodes = [f"n{rank // 8}" for rank in range(200)]
    before = set(threading.enumerate())  # some of them may still end
    server = make_server(*nodes)
    with ExitStack() as stack:
        calls = [stack.enter_context(call(server)) for _ in nodes]
        for rank, node in enumerate(nodes):
            calls[rank].sendall(hello(server, rank, node, device=str(rank % 8)))
        answers = {each.makefile("rb").readline() for each in calls}
        assert len(set(threading.enumerate()) - before) == 1
    assert len(answers) == 1
    assert len(json.loads(answers.pop())["addresses"]) == 200
    wait_for(lambda: len(server.lost) == 200)


def test_a_rank_that_does_not_read_holds_up_no_other(make_server: MakeServer) -> None:
    server = make_server("a", "a")
    with call(server) as deaf, ThreadPoolExecutor(1) as pool:
        opened = pool.submit(open_link, server, 1, "a")
        deaf.sendall(hello(server, 0, "a"))
        link = opened.result(PATIENCE_S)
        more_than_fits_between = "x" * 20_000_000
        assert server._serving is not None
        server._serving.soon(server._tell_all, {"said": more_than_fits_between})
        server.ask_to_stop()
        wait_for(lambda: link._asked)
        link.tell_stopped(3)
        assert server._agreements.stopped == {1: 3}
        link.close()


def test_what_a_rank_says_may_come_in_pieces(make_server: MakeServer) -> None:
    server = make_server("a")
    with call(server) as rank:
        rank.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in hello(server, 0, "a"):
            rank.sendall(bytes([byte]))
        wait_for(lambda: not server.missing)
        rank.sendall(said({"entered": 4}, {"stopped": 4}, {"bye": True}))
        wait_for(lambda: server.all_parted)
    assert server.stopped_at == 4
    assert server.lost == []


def test_a_rank_that_talks_nonsense_is_lost(make_server: MakeServer) -> None:
    server = make_server("a", "a")
    with call(server) as rank, call(server) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\n")
        assert stranger.recv(100) == b""
        rank.sendall(said({"token": server.token, "rank": 1}) + b"what?\n")
        assert rank.recv(100) == b""
    assert server.lost == [1]


def test_the_addresses_of_a_node_are_looked_up_once(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def look_up(name: str) -> tuple[str, list[str], list[str]]:
        asked.append(name)
        return name, [], ["127.0.0.1"]

    monkeypatch.setattr(socket, "gethostbyname_ex", look_up)
    server = make_server("alias", "alias", "alias")
    close(open_links(server, "a", "a", "a"))
    server.raise_if_misplaced()
    assert asked == ["alias"]


def test_a_rank_that_has_no_seat_yet_hears_that_the_launcher_is_gone(
    make_server: MakeServer,
) -> None:
    server = make_server("a")
    link = Link.open(server.address, server.token, rank=0, node="a")
    assert server._serving is not None
    wait_for(lambda: server._serving._open)
    server.close()
    with pytest.raises(LaunchError, match="hung up"):
        link.meet(rank=0, node="a", device="cpu")


def come_up(server: ControlServer, rank: int) -> socket.socket:
    rank_end = call(server)
    rank_end.sendall(hello(server, rank, "a"))
    return rank_end


def heard(rank: socket.socket) -> dict[str, object]:
    """The next message of the launcher; {} if it has hung up."""
    line = rank.makefile("rb").readline()
    return dict(json.loads(line)) if line else {}


def test_ranks_that_come_anew_wait_until_they_may_begin(make_server: MakeServer) -> None:
    server = make_server("a", "a")
    first = [come_up(server, rank) for rank in (0, 1)]
    assert all("addresses" in heard(rank) for rank in first)
    first[1].close()
    wait_for(lambda: server.lost == [1])
    server.begin_anew()
    assert (server.lost, server.leaving) == ([], [0])
    assert heard(first[0]) == {"end": True}
    second = [come_up(server, rank) for rank in (1, 0)]
    wait_for(lambda: len(server._seating.hellos) == 2)
    assert len(server.missing) == 2, "one of the earlier ranks has not ended yet"
    first[0].close()
    wait_for(lambda: server.has_come_anew)
    server.ping()  # nobody may be told anything before the answer
    server.let_begin("boot 1 2")
    assert [heard(rank)["launched"] for rank in second] == ["boot 1 2"] * 2
    assert (server.missing, server.lost, server.leaving) == ([], [], [])
    for rank in second:
        rank.close()
    wait_for(lambda: sorted(server.lost) == [0, 1])


def test_a_rank_may_come_anew_before_the_launcher_has_decided(make_server: MakeServer) -> None:
    server = make_server("a")
    first = come_up(server, 0)
    assert "addresses" in heard(first)
    first.close()
    wait_for(lambda: server.lost == [0])
    second = come_up(server, 0)
    wait_for(lambda: server._early)
    server.begin_anew()
    wait_for(lambda: server.has_come_anew)
    server.let_begin("boot 1 2")
    assert heard(second)["launched"] == "boot 1 2"
    server.raise_if_misplaced()
    second.close()


def test_a_rank_that_came_anew_too_early_and_is_gone_does_not_count(
    make_server: MakeServer,
) -> None:
    server = make_server("a")
    for lost in ([0], [0, 0]):
        rank = come_up(server, 0)
        wait_for(lambda: server._early or not server.missing)
        rank.close()
        wait_for(lambda lost=lost: server.lost == lost)  # type: ignore[misc]
    server.begin_anew()
    third = come_up(server, 0)
    wait_for(lambda: server.has_come_anew)
    third.close()


def test_more_files_may_be_open_than_there_are_ranks(make_server: MakeServer) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, before[1]))
    try:
        make_server(*"a" * 300)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 300
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_others_go_on_without_a_rank_that_is_lost(make_server: MakeServer) -> None:
    server = make_server("a", "b", "c")
    links = open_links(server, "a", "b", "c")
    with ThreadPoolExecutor(2) as pool:
        gathered = [pool.submit(links[rank].gather, "value", rank) for rank in (0, 2)]
        links[1].hang_up()
        wait_for(lambda: server.lost == [1])
        server.go_on_without([1])
        assert [each.result(PATIENCE_S) for each in gathered] == [[0, 2], [0, 2]]
    assert (server.lost, server.missing) == ([], [])
    for rank in (0, 2):
        links[rank].close()
    wait_for(lambda: server.all_parted)


def test_survivors_that_are_asked_to_stop_wait_for_no_lost_rank(make_server: MakeServer) -> None:
    server = make_server("a", "b")
    links = open_links(server, "a", "b")
    links[1].hang_up()
    wait_for(lambda: server.lost == [1])
    server.go_on_without([1])
    assert links[0].may_enter(1)
    server.ask_to_stop()
    steps = 1
    while links[0].may_enter(steps + 1):
        steps += 1
        time.sleep(0.001)
    links[0].tell_stopped(steps)
    assert server.stopped_at == steps
    links[0].close()


def test_a_rank_that_was_lost_may_come_again_and_is_answered_at_once(
    make_server: MakeServer,
) -> None:
    server = make_server("a", "b")
    links = open_links(server, "a", "b")
    assert not links[1].comes_again
    links[1].hang_up()
    wait_for(lambda: server.lost == [1])
    server.go_on_without([1])
    again = open_link(server, 1, "b")
    assert again.comes_again
    assert len(again.addresses) == 2
    with ThreadPoolExecutor(1) as pool:
        gathered = pool.submit(links[0].gather, "value", 0)
        assert again.gather("value", 1) == [0, 1] == gathered.result(PATIENCE_S)
    again.hang_up()
    wait_for(lambda: server.lost == [1])
    links[0].close()


def test_nobody_waits_for_a_rank_that_was_started_again_before_it_joins(
    make_server: MakeServer,
) -> None:
    server = make_server("a", "b", "c")
    links = open_links(server, "a", "b", "c")
    links[1].hang_up()
    wait_for(lambda: server.lost == [1])
    server.go_on_without([1], replaced=True)
    again = open_link(server, 1, "b")
    assert again.comes_again
    assert (server.coming, server.training) == ([1], [0, 2])
    with ThreadPoolExecutor(3) as pool:
        early = [pool.submit(links[rank].gather, "value", rank) for rank in (0, 2)]
        assert [each.result(PATIENCE_S) for each in early] == [[0, 2], [0, 2]]
        again.join()
        assert (server.coming, server.training) == ([], [0, 1, 2])
        late = [
            pool.submit(link.gather, "value", rank)
            for rank, link in enumerate((links[0], again, links[2]))
        ]
        assert [each.result(PATIENCE_S) for each in late] == [[0, 1, 2]] * 3
    close([links[0], again, links[2]])


def test_no_rank_joins_when_the_others_have_finished(make_server: MakeServer) -> None:
    server = make_server("a", "b")
    links = open_links(server, "a", "b")
    links[1].hang_up()
    wait_for(lambda: server.lost == [1])
    server.go_on_without([1], replaced=True)
    links[0].finish()
    again = open_link(server, 1, "b")
    again._closing = True  # or its listener would end this process, as it should a rank's
    joining = threading.Thread(target=again.join, daemon=True)
    joining.start()
    links[0].close()
    wait_for(lambda: server.all_parted)
    assert server.coming == [1]
    assert joining.is_alive()


def test_a_rank_that_was_lost_before_all_had_come_up_comes_up_as_if_it_were_the_first(
    make_server: MakeServer,
) -> None:
    server = make_server("a", "b")
    early = Link.open(server.address, server.token, rank=1, node="b")
    shut(early._connection)
    wait_for(lambda: server.lost == [1])
    server.go_on_without([1], replaced=True)
    links = open_links(server, "a", "b")
    assert not links[1].comes_again
    assert (server.coming, server.training) == ([], [0, 1])
    close(links)


def test_a_rank_that_comes_again_hears_that_all_stop_and_after_which_step(
    make_server: MakeServer,
) -> None:
    server = make_server("a", "b")
    links = open_links(server, "a", "b")
    links[1].hang_up()
    wait_for(lambda: server.lost == [1])
    server.go_on_without([1], replaced=True)
    assert links[0].may_enter(1)
    server.ask_to_stop()
    last = 1
    while links[0].may_enter(last + 1):
        last += 1
        time.sleep(0.001)
    again = open_link(server, 1, "b")
    wait_for(lambda: again._asked)
    assert again.may_enter(last)
    assert not again.may_enter(last + 1)
    close([links[0], again])


def test_a_rank_that_was_started_again_is_not_silent_since_its_earlier_life(
    make_server: MakeServer,
) -> None:
    server = make_server("a", "b")
    links = open_links(server, "a", "b")
    server.ping()
    wait_for(lambda: server._heard.keys() == {0, 1})
    links[1].hang_up()
    wait_for(lambda: server.lost == [1])
    server.go_on_without([1], replaced=True)
    again = open_link(server, 1, "b")
    assert server.silent(0.0) == [0]
    close([links[0], again])

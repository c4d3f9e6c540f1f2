"""The connections of ranks to their launcher: strangers, slow readers, broken lines, and many ranks."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from control_links import PATIENCE_S, MakeServer, call, hello, open_link, said, wait_for

from ckptbench.errors import LaunchError
from ckptbench.world.link import Link

SOURCE = Path(__file__).resolve().parents[2] / "src"


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


def test_more_files_may_be_open_than_there_are_ranks(make_server: MakeServer) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, before[1]))
    try:
        make_server(*"a" * 300)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 300
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

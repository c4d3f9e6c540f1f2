"""The connections of ranks to their launcher: strangers, slow readers, broken lines, and many ranks."""

from __future__ import annotations

import ast
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
from control_links import (
    PATIENCE_S,
    MakeServer,
    call,
    close,
    hello,
    open_link,
    open_links,
    said,
    wait_for,
)

from ckptbench.common.errors import LaunchError
from ckptbench.run.control import connections
from ckptbench.run.control import server as control
from ckptbench.run.control.link import Link

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
        "import sys, time; from ckptbench.run.control.link import Link;"
        f"link = Link.open({server.address!r}, {server.token!r}, rank=0, node='a');"
        "link.rendezvous(rank=0, node='a', device='cpu'); time.sleep(600)"
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
        link.rendezvous(rank=0, node="a", device="cpu")


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
        server._tell_all({"said": more_than_fits_between})
        server.ask_to_stop()
        wait_for(lambda: link._asked)
        link.tell_stopped(3)
        assert [rank.stopped for rank in server._ranks] == [None, 3]
        link.close()


def test_what_a_rank_says_may_come_in_pieces(
    make_server: MakeServer, caplog: pytest.LogCaptureFixture
) -> None:
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
    server.close()
    assert "as all such are" not in caplog.text


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


def flood(stranger: socket.socket, megabytes: int) -> int:
    """Send so much without an end of line, and return how many bytes went out before the other end hung up."""
    block, sent = b"x" * 100_000, 0
    try:
        while sent < megabytes * 1_000_000:
            sent += stranger.send(block)
    except OSError:
        pass
    return sent


def has_ended(stranger: socket.socket) -> bool:
    try:
        return stranger.recv(100) == b""
    except ConnectionResetError:
        return True


def test_a_flood_of_a_stranger_is_not_kept_and_ranks_go_on(
    make_server: MakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server("a", "a")
    links = open_links(server, "a", "a")
    with ThreadPoolExecutor(8) as pool, ExitStack() as stack:
        strangers = [stack.enter_context(call(server)) for _ in range(8)]
        floods = [pool.submit(flood, stranger, 50) for stranger in strangers]
        for number in range(20):
            gathered = [pool.submit(link.gather, f"value {number}", number) for link in links]
            assert [each.result(PATIENCE_S) for each in gathered] == [[number, number]] * 2
        # What the kernel holds on the way has gone out as well.
        assert max(each.result(PATIENCE_S) for each in floods) < 20_000_000
        assert all(map(has_ended, strangers))
    assert server.lost == []
    assert sum("ended, as all such are" in line for line in caplog.messages) == 1
    close(links)


def test_whoever_says_nothing_is_not_waited_for(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "TOKEN_SECONDS", 0.2)
    server = make_server("a")
    (link,) = open_links(server, "a")
    with call(server) as silent, call(server) as slow:
        slow.sendall(b'{"token"')
        assert has_ended(silent)
        assert has_ended(slow)
    assert link.gather("value", 1) == [1], "a rank has all the time"
    link.close()


def test_strangers_cannot_be_so_many_that_no_rank_comes_in(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "STRANGERS", 5)
    server = make_server("a")
    with ExitStack() as stack:
        strangers = [stack.enter_context(call(server)) for _ in range(40)]
        (link,) = open_links(server, "a")
        assert server._serving is not None
        most = 5 + 1
        wait_for(lambda: len(server._serving._open) <= most + 1)
        assert all(map(has_ended, strangers[: 40 - most])), "the oldest are ended"
        assert link.gather("value", 1) == [1]
        link.close()


@pytest.mark.parametrize(
    "line",
    [b"[" * 900, b'"token"', b"[1]", b'{"token": null}', b'{"token": ["x"], "rank": 0}', b"\xff\xfe", b"",
     b'{"token": "\\u00e9", "rank": 0}', b"1e999", b"NaN"],
)  # fmt: skip
def test_a_first_line_of_any_kind_is_refused(make_server: MakeServer, line: bytes) -> None:
    server = make_server("a")
    with call(server) as stranger:
        stranger.sendall(line + b"\n")
        assert has_ended(stranger)
    assert server.lost == []
    assert len(server.missing) == 1


def test_a_line_of_a_rank_that_never_ends_is_a_lost_rank(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connections, "LINE_BYTES", 100_000)
    server = make_server("a", "a")
    with call(server) as rank:
        rank.sendall(hello(server, 1, "a") + said({"gather": "much", "value": "x" * 90_000}))
        wait_for(lambda: server._ranks[1].given)
        flood(rank, 50)
        assert has_ended(rank)
    wait_for(lambda: server.lost == [1])
    assert "rank 1 counts as lost: a line of more than 100000 bytes" in caplog.text


def test_the_secret_is_compared_in_constant_time() -> None:
    """As far as it can be seen from outside: the launcher does not compare it by `==`."""
    tree = ast.parse(Path(control.__file__).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(
            isinstance(each, ast.Eq | ast.NotEq) for each in node.ops
        ):
            assert "token" not in ast.unparse(node), ast.unparse(node)

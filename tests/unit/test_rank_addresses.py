"""Where ranks come up: all learn the addresses of all, and a rank in a wrong place is a problem."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from control_links import PATIENCE_S, MakeServer, close, open_link, open_links, wait_for

from ckptbench.common.errors import LaunchError


def test_ranks_learn_the_addresses_of_all_when_all_have_come(make_server: MakeServer) -> None:
    server = make_server("a", "b", "b")
    assert [assignment.rank for assignment in server.missing] == [0, 1, 2]
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

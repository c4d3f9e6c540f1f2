"""Which ranks take part: some are lost, the others go on without them, and ranks come again or all come anew."""

from __future__ import annotations

import json
import math
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from control_links import (
    PATIENCE_S,
    MakeServer,
    call,
    close,
    hello,
    open_link,
    open_links,
    wait_for,
)

from ckptbench.run.control.link import Link, shut
from ckptbench.run.control.server import ControlServer


def test_a_rank_that_says_goodbye_is_not_lost_and_one_that_does_not_is(
    make_server: MakeServer,
) -> None:
    server = make_server("a", "a")
    links = open_links(server, "a", "a")
    links[0].close()
    links[1]._closing = True  # or its listener would end this process, as it should a rank's
    shut(links[1]._connection)
    wait_for(lambda: server.lost == [1])
    wait_for(lambda: not any(rank.connection for rank in server._ranks))
    assert server.lost == [1]


def test_a_rank_that_dies_before_it_has_come_up_is_lost(make_server: MakeServer) -> None:
    server = make_server("a", "a")
    shut(Link.open(server.address, server.token, rank=1, node="a")._connection)
    wait_for(lambda: server.lost == [1])
    assert len(server.missing) == 2


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
    wait_for(lambda: server._is_full)
    assert len(server.missing) == 2, "one of the earlier ranks has not ended yet"
    first[0].close()
    wait_for(lambda: server.has_restarted)
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
    wait_for(lambda: server.has_restarted)
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
    wait_for(lambda: server.has_restarted)
    third.close()


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


def test_survivors_that_wait_for_the_last_step_do_not_wait_for_a_rank_that_is_lost_meanwhile(
    make_server: MakeServer,
) -> None:
    server = make_server("a", "a")
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(open_link, server, 0, "a")
        silent = come_up(server, 1)
        link = opening.result(PATIENCE_S)
    assert link.may_enter(1)
    server.ask_to_stop()
    wait_for(lambda: server._ranks[0].entered == 1)
    assert link._last_step is None
    silent.close()
    wait_for(lambda: server.lost == [1])
    server.go_on_without([1])
    wait_for(lambda: link._last_step == 1)
    link.close()


def test_a_rank_that_was_lost_may_come_again_and_is_answered_at_once(
    make_server: MakeServer,
) -> None:
    server = make_server("a", "b")
    links = open_links(server, "a", "b")
    assert not links[1].is_replacement
    links[1].hang_up()
    wait_for(lambda: server.lost == [1])
    server.go_on_without([1])
    again = open_link(server, 1, "b")
    assert again.is_replacement
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
    assert again.is_replacement
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
    wait_for(lambda: server._ranks[1].heard < math.inf)
    assert server.coming == [1]
    links[0].close()
    wait_for(lambda: server.all_parted)
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
    assert not links[1].is_replacement
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
    wait_for(lambda: all(rank.heard < math.inf for rank in server._ranks))
    links[1].hang_up()
    wait_for(lambda: server.lost == [1])
    server.go_on_without([1], replaced=True)
    again = open_link(server, 1, "b")
    assert server.silent(0.0) == [0]
    close([links[0], again])

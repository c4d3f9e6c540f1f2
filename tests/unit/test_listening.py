"""Where the launcher listens: at the addresses by which ranks reach it, and at no other."""

from __future__ import annotations

import socket
from collections.abc import Mapping

import pytest

from ckptbench.run.control import listening
from ckptbench.run.control.listening import listen
from ckptbench.run.control.ranks import assign_ranks
from ckptbench.run.control.server import ControlServer

OUTSIDE = "192.0.2.1"
"""An address of no machine (RFC 5737)."""


def at(listeners: list[socket.socket]) -> list[str]:
    """The addresses. All must have one port."""
    bound = [listener.getsockname() for listener in listeners]
    for listener in listeners:
        listener.close()
    assert len({port for _, port in bound}) == 1
    return [address for address, _ in bound]


@pytest.mark.parametrize(
    ("names", "ways", "heard"),
    [
        pytest.param({"me": "127.0.0.2"}, {"n1": "127.0.0.3"}, ["0.0.0.0"], id="nothing is known of others"),
        pytest.param({}, {}, ["0.0.0.0"], id="nothing is known at all"),
        pytest.param({"me": OUTSIDE}, {}, ["0.0.0.0"], id="an address that others translate"),
    ],
)  # fmt: skip
def test_it_listens_everywhere_only_where_nothing_says_how_others_reach_it(
    monkeypatch: pytest.MonkeyPatch,
    names: Mapping[str, str],
    ways: Mapping[str, str],
    heard: list[str],
) -> None:
    name_service(monkeypatch, names, ways)
    assert at(listen("me", ["me", "n1"])) == heard


def test_it_listens_where_its_name_and_its_ways_to_other_nodes_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "LOOPBACK", "127.0.1.")  # the others stand for real networks
    name_service(monkeypatch, {"me": "127.0.1.1"}, {"n1": "127.0.0.2", "n2": "127.0.0.3"})
    assert at(listen("me", ["me", "n1", "n2", "n3"])) == ["127.0.0.2", "127.0.0.3", "127.0.1.1"]


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.7"])
def test_an_address_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    name_service(monkeypatch, {}, {"n1": "127.0.0.3"})
    assert at(listen(address, ["n1"])) == [address]


def test_a_name_of_this_host_alone_is_not_heard_from_outside() -> None:
    server = ControlServer(assign_ranks(["a", "a"]), host="127.0.0.1")
    assert at(server._listeners) == ["127.0.0.1"]


def test_only_a_few_nodes_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = name_service(monkeypatch, {"me": "127.0.0.2"}, {})
    at(listen("me", [f"n{number}" for number in range(100)]))
    assert asked == ["n0", "n1", "n2"]


def test_a_port_that_another_process_has_is_not_insisted_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every second address must have the port of the first."""
    monkeypatch.setattr(listening, "LOOPBACK", "127.0.1.")
    name_service(monkeypatch, {"me": "127.0.0.2 127.0.0.3"}, {})
    create, taken = socket.create_server, []

    def create_and_take(address: tuple[str, int], **options: int) -> socket.socket:
        if address[0] == "127.0.0.3" and len(taken) < 3:
            taken.append(address)
            raise OSError("the address is in use")
        return create(address, **options)

    monkeypatch.setattr(listening.socket, "create_server", create_and_take)
    assert at(listen("me", [])) == ["127.0.0.2", "127.0.0.3"]
    assert len({port for _, port in taken}) > 1


def name_service(
    monkeypatch: pytest.MonkeyPatch, names: Mapping[str, str], ways: Mapping[str, str]
) -> list[str]:
    """What names stand for on this host, and from which of its addresses it reaches a node. Returns the nodes asked for."""
    asked: list[str] = []

    def look_up(name: str) -> tuple[str, list[str], list[str]]:
        if name not in names:
            raise socket.gaierror("the name is not known")
        return name, [], names[name].split()

    class Probe(socket.socket):
        def connect(self, address: tuple[str, int]) -> None:  # type: ignore[override]
            asked.append(address[0])
            if address[0] not in ways:
                raise socket.gaierror("the name is not known")
            self.bind((ways[address[0]], 0))

    monkeypatch.setattr(listening.socket, "gethostbyname_ex", look_up)
    monkeypatch.setattr(listening.socket, "socket", Probe)
    return asked

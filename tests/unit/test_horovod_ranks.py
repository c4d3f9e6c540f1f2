"""What Horovod is told of who is who; no Horovod is needed for it."""

from __future__ import annotations

import socket
import threading

import pytest

from ckptbench.common.errors import LaunchError
from ckptbench.frameworks.horovod import ranks as horovod_ranks
from ckptbench.frameworks.numpy_framework import NumpyFramework
from ckptbench.run.control.ranks import RankContext


class Rank(horovod_ranks.OverHorovod, NumpyFramework): ...


def world(rank: int, *hosts: str) -> RankContext:
    """One of several ranks, by the host of each."""
    addresses = tuple(f"{host}:{5000 + number}" for number, host in enumerate(hosts))
    return RankContext(
        rank=rank,
        world_size=len(hosts),
        local_rank=hosts[:rank].count(hosts[rank]),
        node="node",
        threads=1,
        addresses=addresses,
    )


def told(world: RankContext, *names: str) -> list[int]:
    variables = horovod_ranks.environment(world, deterministic=False)
    return [int(variables[f"HOROVOD_{name}"]) for name in names]


def test_every_rank_knows_its_number_on_its_host_and_across_hosts() -> None:
    """Three ranks on one host, two on the next: the third local rank is alone across hosts."""
    hosts = ("10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.2")
    names = ("LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    assert [told(world(rank, *hosts), *names) for rank in range(5)] == [
        [0, 3, 0, 2],
        [1, 3, 0, 2],
        [2, 3, 0, 1],
        [0, 2, 1, 2],
        [1, 2, 1, 2],
    ]
    assert [told(world(rank, *hosts), "RANK", "SIZE") for rank in (0, 4)] == [[0, 5], [4, 5]]


def test_they_meet_at_the_address_of_rank_0() -> None:
    variables = horovod_ranks.environment(world(1, "10.0.0.1", "10.0.0.2"), deterministic=False)
    assert variables["HOROVOD_GLOO_RENDEZVOUS_ADDR"] == "10.0.0.1"
    assert variables["HOROVOD_GLOO_RENDEZVOUS_PORT"] == "5000"
    assert variables["HOROVOD_HOSTNAME"] == "10.0.0.2"


def test_one_rank_meets_nobody() -> None:
    variables = horovod_ranks.environment(world(0, "127.0.0.1"), deterministic=False)
    assert not [name for name in variables if "RENDEZVOUS" in name]


def test_gloo_takes_the_interface_that_was_chosen_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "ib0,ib1")
    variables = horovod_ranks.environment(world(0, "a", "b"), deterministic=False)
    assert variables["HOROVOD_GLOO_IFACE"] == "ib0"
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    variables = horovod_ranks.environment(world(0, "a", "b"), deterministic=False)
    assert "HOROVOD_GLOO_IFACE" not in variables


def test_only_deterministic_mode_forbids_to_fuse_gradients() -> None:
    of = {
        mode: horovod_ranks.environment(world(0, "a", "b"), deterministic=mode)
        for mode in (False, True)
    }
    assert "HOROVOD_FUSION_THRESHOLD" not in of[False]
    assert of[True]["HOROVOD_FUSION_THRESHOLD"] == "0"


def test_the_other_ranks_wait_until_rank_0_answers() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        later = threading.Timer(0.2, listener.listen)
        later.start()
        horovod_ranks._await(f"127.0.0.1:{listener.getsockname()[1]}")
        later.join()


def test_and_give_up_when_it_never_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(horovod_ranks, "MEETING_SECONDS", 0)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(LaunchError, match=f"rank 0 does not answer at {address}"):
            horovod_ranks._await(address)

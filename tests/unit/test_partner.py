"""Copies on the next node: sent and kept behind training, and every failure on the way is an error of the save."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from several_nodes import PATIENCE_S, Meeting, Nodes, places

from ckptbench.checkpoints.checksum import file_checksum
from ckptbench.common.errors import CheckpointError
from ckptbench.matrix.levels import MEMORY, NODE, SHARED
from ckptbench.runs.events import File
from ckptbench.runs.trace import read_trace
from ckptbench.strategies import partner
from ckptbench.strategies.partner import Inbox, Partner
from ckptbench.strategies.state_files import own_name, share_name


def files_of(*ranks: int) -> set[str]:
    return {name for rank in ranks for name in (own_name(rank), share_name(rank))}


@pytest.mark.parametrize(
    ("nodes", "held"),
    [
        ("ab", {"a": (0, 1), "b": (0, 1)}),
        ("abc", {"a": (0, 2), "b": (0, 1), "c": (1, 2)}),
        ("aab", {"a": (0, 1, 2), "b": (0, 1, 2)}),
        ("aabbc", {"a": (0, 1, 4), "b": (0, 1, 2, 3), "c": (2, 3, 4)}),
    ],
)
def test_a_node_has_its_own_shares_and_those_of_the_node_before(
    tmp_path: Path, nodes: str, held: dict[str, tuple[int, ...]]
) -> None:
    run = Nodes(tmp_path, nodes, memory=1, shared=0)
    run.train(1, 2)
    run.close()
    for place, levels in zip(run.places, run.levels, strict=True):
        version = levels.stores[MEMORY].newest()
        assert version is not None
        assert version.position.step == 2
        assert version.world_size == len(nodes)
        assert version.files.keys() == files_of(*held[place.node])
        assert levels.stores[SHARED].steps() == []


def test_a_copy_has_the_bytes_that_its_rank_has_written(tmp_path: Path) -> None:
    run = Nodes(tmp_path, "ab", memory=1, shared=0)
    run.train(1, 2, 3, 4, 5)  # the later ones are written over files of removed versions
    run.close()
    for name in files_of(0, 1):
        copies = {
            file_checksum(levels.stores[MEMORY].folder / "version-00000005" / name)
            for levels in run.levels
        }
        assert len(copies) == 1


def test_every_near_level_has_copies_and_the_shared_one_has_none(tmp_path: Path) -> None:
    run = Nodes(tmp_path, "ab", levels=(MEMORY, NODE), memory=1, node=2, shared=2)
    run.train(1, 2)
    run.close()
    for levels in run.levels:
        assert {level: store.steps() for level, store in levels.stores.items()} == {
            MEMORY: [2, 1],
            NODE: [2],
            SHARED: [2],
        }
        for store in levels.stores.values():
            version = store.newest()
            assert version is not None
            assert version.files.keys() == files_of(0, 1)
    written = read_trace(run.trace(0)).checkpoints[2].written
    assert {file.name for file in written[NODE].files} == files_of(0, 1)
    assert {file.name for file in written[SHARED].files} == files_of(0)


def test_without_partner_a_node_has_its_own_shares_alone(tmp_path: Path) -> None:
    run = Nodes(tmp_path, "ab", memory=1, shared=0, partner=0)
    run.train(1)
    run.close()
    for rank, levels in enumerate(run.levels):
        version = levels.stores[MEMORY].newest()
        assert version is not None
        assert version.files.keys() == files_of(rank)


def test_two_copies_are_on_two_other_nodes(tmp_path: Path) -> None:
    run = Nodes(tmp_path, "abc", memory=1, shared=0, partner=2)
    run.train(1)
    run.close()
    for levels in run.levels:
        version = levels.stores[MEMORY].newest()
        assert version is not None
        assert version.files.keys() == files_of(0, 1, 2)


def test_each_first_rank_of_a_node_tells_what_its_node_has(tmp_path: Path) -> None:
    run = Nodes(tmp_path, "aab", memory=1, shared=2)
    run.train(1, 2)
    run.close()
    durable = [read_trace(run.trace(rank)).checkpoints[2].durable for rank in range(3)]
    assert [list(each) for each in durable] == [[MEMORY, SHARED], [], [MEMORY]]
    assert {file.name for file in durable[2][MEMORY].files} == files_of(0, 1, 2)


def test_no_node_begins_a_version_before_all_have_the_one_before(tmp_path: Path) -> None:
    run = Nodes(
        tmp_path, "ab", memory=1, shared=0, partner=0
    )  # else copies hold the nodes together
    slow = run.levels[1].stores[MEMORY]
    commit, seen = slow.commit, []

    def commit_and_look(*arguments: Any, **named: Any) -> Any:
        time.sleep(0.1)  # for the other node to go on, if it could
        seen.append(run.levels[0].stores[MEMORY].steps()[:1])
        return commit(*arguments, **named)

    slow.commit = commit_and_look  # type: ignore[method-assign]
    run.train(1, 2, 3, 4)
    run.close()
    for step, newest in enumerate(seen, start=1):
        assert newest in ([], [step - 1], [step]), "the other node is ahead by a version at most"
    assert [hold.why for hold in read_trace(run.trace(0)).checkpoints[1].holds] == ["save"]


def test_nothing_near_is_left_when_training_is_complete(tmp_path: Path) -> None:
    run = Nodes(tmp_path, "ab", memory=1, shared=2)
    run.train(1, 2)
    run.close(complete=True)
    for levels in run.levels:
        assert not levels.stores[MEMORY].folder.exists()
        assert levels.stores[SHARED].steps() == [2]


def test_a_stopped_run_leaves_its_near_levels(tmp_path: Path) -> None:
    run = Nodes(tmp_path, "ab", memory=1, shared=0)
    run.train(1)
    run.close()
    assert all(levels.stores[MEMORY].steps() == [1] for levels in run.levels)


# Failures


def spoil(monkeypatch: pytest.MonkeyPatch, received: Callable[[bytearray], None]) -> None:
    """Change the bytes of files as they arrive."""

    class Spoilt(partner.Checksum):
        def update(self, content: memoryview) -> None:
            received(content)  # type: ignore[arg-type]
            super().update(content)

    monkeypatch.setattr(partner, "Checksum", Spoilt)


def test_a_copy_that_is_changed_on_the_way_is_an_error_of_both_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Nodes(tmp_path, "ab", memory=1, shared=0)

    def flip(content: bytearray) -> None:
        content[0] ^= 1

    spoil(monkeypatch, flip)
    run.train(1)
    for rank in (0, 1):
        with pytest.raises(CheckpointError, match=r"step 1 cannot .* was changed on the way"):
            run.ranks[rank].settle()
    assert all(levels.stores[MEMORY].steps() == [] for levels in run.levels)


def test_a_full_disk_of_the_partner_is_named_by_both_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Nodes(tmp_path, "ab", memory=1, shared=0)

    def full(content: bytearray) -> None:
        raise OSError(28, "No space left on device")

    spoil(monkeypatch, full)
    run.train(1)
    for rank in (0, 1):
        with pytest.raises(
            CheckpointError, match=r"kept at the level memory .*No space left on device"
        ):
            run.ranks[rank].settle()


def test_a_staging_folder_that_cannot_be_made_is_an_error_of_both_saves(tmp_path: Path) -> None:
    run = Nodes(tmp_path, "ab", memory=1, shared=0)
    inbox = run.engine(1)._partner._inbox  # type: ignore[union-attr]

    def read_only(level: str, step: int) -> Path:
        raise OSError(30, "Read-only file system")

    inbox._staging = read_only
    run.train(1)
    for rank in (0, 1):
        with pytest.raises(CheckpointError, match=r"copy of rank 0 .*Read-only file system"):
            run.ranks[rank].settle()


def test_a_connection_that_cannot_be_accepted_now_is_accepted_later(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept, left = socket.socket.accept, [3]

    def too_many(listener: socket.socket) -> Any:
        accepted = accept(listener)
        if left[0]:
            left[0] -= 1
            accepted[0].close()
            raise OSError(24, "Too many open files")
        return accepted

    monkeypatch.setattr(socket.socket, "accept", too_many)
    for _ in range(4):  # the first thread that accepts has not seen the change
        with ends.call(0) as stranger:
            stranger.shutdown(socket.SHUT_WR)
            assert stranger.recv(100) == b""
    assert left == [0]
    assert ends.ends[0]._inbox._accepting.is_alive()


def test_a_run_that_begins_anew_forgets_what_its_nodes_hold(tmp_path: Path) -> None:
    trained = Nodes(tmp_path, "ab", memory=1, shared=0)
    trained.train(1, 2)
    trained.close()
    anew = Nodes(tmp_path, "ab", memory=1, shared=0)
    assert [levels.stores[MEMORY].steps() for levels in anew.levels] == [[], []]
    anew.close()


def test_a_partner_that_is_gone_is_an_error_with_its_address(tmp_path: Path) -> None:
    run = Nodes(tmp_path, "ab", memory=1, shared=0)
    gone = run.engine(1)._partner
    assert gone is not None
    gone.close()
    run.train(1)
    with pytest.raises(
        CheckpointError,
        match=rf"partner, rank 1 at 127.0.0.1:{gone._inbox.port}, cannot be sent .*refused",
    ):
        run.ranks[0].settle()
    # Rank 1 waits for its copy until a launcher ends it; here Python would wait for rank 1's thread at its exit.
    gone._inbox._future(MEMORY, 1, 0).set_exception(CheckpointError("rank 0 is gone"))


class Ends:
    """The two ends of two ranks, each on its own node, that write nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.listening: list[dict[str, Any]] = [{}, {}]
        with ThreadPoolExecutor(2) as pool:
            self._meeting = Meeting(2)
            self.ends = list(pool.map(self._open, (0, 1)))

    def _open(self, rank: int) -> Partner:
        def gather(name: str, value: Any) -> list[Any]:
            self.listening = self._meeting.gather(rank, name, value)
            return self.listening

        return Partner.open(
            places("ab")[rank], 1, gather=gather,
            staging=lambda level, step: self.staging(rank), spare=lambda level: self.folder / "no",
        )  # fmt: skip

    def staging(self, rank: int) -> Path:
        folder = self.folder / str(rank)
        folder.mkdir(exist_ok=True)
        return folder

    def file(self, rank: int) -> File:
        (self.staging(rank) / f"of-{rank}").write_bytes(bytes(3_000_000) + bytes([rank]))
        return File(name=f"of-{rank}", kind="state", rank=rank, bytes=3_000_001)

    def call(self, rank: int) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.listening[rank]["port"]), PATIENCE_S)


@pytest.fixture
def ends(tmp_path: Path) -> Any:
    both = Ends(tmp_path)
    yield both
    for end in both.ends:
        end.close()


def test_a_sender_that_dies_in_the_middle_is_an_error_of_the_receiver(ends: Ends) -> None:
    with ends.call(0) as sender:
        files = [{"name": "of-1", "kind": "state", "rank": 1, "bytes": 100, "checksum": "x"}]
        request = {"rank": 1, "level": MEMORY, "step": 3, "files": files}
        secret = ends.listening[0]["secret"].encode()
        sender.sendall(secret + json.dumps(request).encode() + b"\n" + bytes(40))
    with pytest.raises(CheckpointError, match=r"copy of rank 1 .* hung up 60 bytes before the end"):
        ends.ends[0]._inbox.copy(MEMORY, 3, 1)


def test_a_stranger_is_not_heard_and_disturbs_no_copy(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partner, "SECRET_SECONDS", 0.2)
    for said in (
        b"GET / HTTP/1.1\r\nHost: a-rank.example\r\n",
        b"0" * 32,
        b"\xff" * 32,
        b"\n",
        b"",
    ):
        with ends.call(0) as stranger:
            stranger.sendall(said)
            assert has_ended(stranger)
    exchange(ends)


def test_an_inbox_is_heard_at_the_address_of_its_rank_alone(tmp_path: Path) -> None:
    for host in ("127.0.0.1", "127.0.0.3"):
        inbox = Inbox(host, lambda level, step: tmp_path, lambda level: tmp_path)
        assert inbox._listener.getsockname()[0] == host
        inbox.close()


def has_ended(stranger: socket.socket) -> bool:
    try:
        return stranger.recv(100) == b""
    except ConnectionResetError:
        return True


def exchange(ends: Ends, step: int = 1) -> None:
    """Both ranks send a copy and keep one, in a new version."""
    for rank in (0, 1):
        (ends.staging(rank) / f"of-{1 - rank}").unlink(missing_ok=True)
    with ThreadPoolExecutor(2) as pool:
        kept = [
            pool.submit(
                ends.ends[rank].exchange, MEMORY, step, ends.staging(rank), [ends.file(rank)]
            )
            for rank in (0, 1)
        ]
        names = [[file.name for file in each.result(PATIENCE_S)] for each in kept]
    assert names == [["of-1"], ["of-0"]]
    assert (ends.staging(0) / "of-1").read_bytes() == (ends.staging(1) / "of-1").read_bytes()


def test_a_copy_may_come_before_its_receiver_asks_for_it(ends: Ends) -> None:
    ends.ends[1]._send(
        ends.ends[1]._peers[0], MEMORY, 1, ends.staging(1),
        [partner._with_checksum(ends.staging(1), ends.file(1))],
    )  # fmt: skip
    (file,) = ends.ends[0]._inbox.copy(MEMORY, 1, 1)
    assert file.name == "of-1"
    assert ends.ends[0]._inbox._copies == {}


def test_a_proof_loads_what_lies_on_several_nodes(tmp_path: Path) -> None:
    """The newest version of a level that belongs to the nodes, put together, and every shared one."""
    run = Nodes(tmp_path, "aabc", levels=(MEMORY, NODE), memory=1, node=2, shared=2)
    run.train(1, 2, 3)
    run.settle()

    def compared(rank: int) -> list[tuple[str, int, set[float]]]:
        found = []
        framework = run.frameworks[rank]
        for level, version in run.ranks[rank].versions():
            for momentum in framework.momenta.values():
                momentum[...] = 0
            run.ranks[rank].load(version)
            values = {float(x) for array in framework.momenta.values() for x in array.ravel()}
            found.append((level, version.position.step, values))
        return found

    expected = [(MEMORY, 3, {3.0}), (NODE, 2, {2.0}), (SHARED, 2, {2.0})]
    assert run.all(compared) == [expected] * 4
    run.close(complete=True)
    assert {path.name for path in (tmp_path / SHARED).iterdir()} == {"version-00000002"}

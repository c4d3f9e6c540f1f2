"""Partner copies: what a rank has written to a level of its node, a rank of the next node keeps as well.

So the loss of a node loses no share. A copy comes over a TCP connection of its own, between threads that write in the
background. The sender says the receiver's secret, and a line of JSON with its rank, level and step, and names, sizes and
checksums of the files; their bytes follow. The receiver writes them into its own staging folder, where they become files of
its node's version. It answers with a line when it has them all and their checksums are right, or with an error.
"""

from __future__ import annotations

import dataclasses
import hmac
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

from ckptbench.checkpoints.checksum import Checksum, file_checksum
from ckptbench.common.errors import CheckpointError
from ckptbench.common.files import write_all
from ckptbench.common.remedies import remedy
from ckptbench.runs.events import File
from ckptbench.strategies.writer import take
from ckptbench.world.link import decoded, encoded, shut
from ckptbench.world.listening import listen
from ckptbench.world.ranks import RankContext, partners_of

log = logging.getLogger(__name__)

IDLE_SECONDS = 600.0
"""How long either end waits until the other goes on. Its storage may be slow; a dead one is noticed by the launcher."""
BLOCK_BYTES = 1 << 20
"""Bytes received at a time: they stay in the core's cache until they are added to the checksum and written."""
RETRY_SECONDS = 0.1
"""Where a process has as many open files as it may, it accepts no connection for a while."""
LINE_BYTES = 1 << 20
"""The longest line that is read."""
SECRET_SECONDS = 30.0
"""How long a connection may take to send the secret. A rank sends it at once."""
Folder = Callable[[str, int], Path]


@dataclass(frozen=True, slots=True)
class Peer:
    """A rank that keeps copies of this one."""

    rank: int
    host: str
    port: int
    secret: str


class Partner:
    """One rank's end: it sends its copies, and receives those of others in threads that run until `close`."""

    def __init__(
        self, rank: int, peers: Sequence[Peer], senders: Sequence[int], inbox: Inbox
    ) -> None:
        """`peers` keep this rank's copies, and this rank keeps those of the ranks `senders`."""
        self._rank = rank
        self._peers = peers
        self._senders = senders
        self._inbox = inbox

    @classmethod
    def open(
        cls,
        world: RankContext,
        copies: int,
        *,
        gather: Callable[[str, Any], Sequence[Any]],
        staging: Folder,
        spare: Callable[[str], Path],
    ) -> Self:
        """Begin to listen, and learn where the others do. All ranks of a run on several nodes call it.

        Copies go to so many other nodes as `copies` says; `staging` and `spare` are those of `contract.StrategyContext`.
        """
        inbox = Inbox(_host(world.addresses[world.rank]), staging, spare)
        listening = gather("partner", {"port": inbox.port, "secret": inbox.secret})
        peers = [
            Peer(rank, _host(world.addresses[rank]), **listening[rank])
            for rank in partners_of(world.nodes, world.rank, copies)
        ]
        senders = [
            rank
            for rank in range(world.world_size)
            if world.rank in partners_of(world.nodes, rank, copies)
        ]
        return cls(world.rank, peers, senders, inbox)

    def exchange(
        self, level: str, step: int, staging: Path, files: Iterable[File]
    ) -> tuple[File, ...]:
        """Send copies of these files, which are in `staging`, and return the files of the copies that this rank keeps.

        Raises CheckpointError if a copy cannot be sent or kept.
        """
        known = [_with_checksum(staging, file) for file in files]
        for peer in self._peers:
            self._send(peer, level, step, staging, known)
        # No limit: a sender may take any time to write, and the launcher ends this rank if the sender dies.
        return tuple(file for rank in self._senders for file in self._inbox.copy(level, step, rank))

    def close(self) -> None:
        """Stop to listen. No copy may be on the way."""
        self._inbox.close()

    def _send(
        self, peer: Peer, level: str, step: int, staging: Path, files: Sequence[File]
    ) -> None:
        request = {
            "rank": self._rank,
            "level": level,
            "step": step,
            "files": [dataclasses.asdict(file) for file in files],
        }
        try:
            with socket.create_connection((peer.host, peer.port), IDLE_SECONDS) as connection:
                connection.sendall(peer.secret.encode() + encoded(request))
                for file in files:
                    with (staging / file.name).open("rb") as content:
                        connection.sendfile(content)
                with connection.makefile("rb") as answers:
                    answer = decoded(answers.readline())
        except OSError as error:
            raise CheckpointError(
                f"the copy of rank {self._rank} for its partner, rank {peer.rank} at {peer.host}:{peer.port}, cannot be "
                f"sent ({error}): nodes must reach each other, or set partner: 0"
            ) from error
        if "kept" not in answer:
            raise CheckpointError(
                answer.get("error")
                or f"rank {peer.rank}, which keeps copies of rank {self._rank}, hung up"
            )


class Inbox:
    """The copies that come to one rank. A thread accepts connections, and each of these has a thread of its own."""

    def __init__(self, host: str, staging: Folder, spare: Callable[[str], Path]) -> None:
        """Listens at `host`, the address that other ranks know."""
        self._staging = staging
        self._spare = spare
        self._copies: dict[tuple[str, int, int], Future[tuple[File, ...]]] = {}
        self._lock = threading.Lock()
        (self._listener,) = listen(host)
        self.port: int = self._listener.getsockname()[1]
        self.secret = secrets.token_hex(16)
        self._closed = False
        self._accepting = threading.Thread(target=self._accept, name="partner", daemon=True)
        self._accepting.start()

    def copy(self, level: str, step: int, rank: int) -> tuple[File, ...]:
        """Wait for the copy of this rank, and return its files. Raises CheckpointError if it could not be kept."""
        files = self._future(level, step, rank).result()
        with self._lock:
            del self._copies[level, step, rank]
        return files

    def close(self) -> None:
        self._closed = True
        shut(self._listener)  # closing alone does not wake the thread that accepts
        self._accepting.join()
        self._listener.close()

    def _future(self, level: str, step: int, rank: int) -> Future[tuple[File, ...]]:
        with self._lock:
            return self._copies.setdefault((level, step, rank), Future())

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if self._closed:
                    return
                log.warning("the copy of another rank is not accepted yet: %s", error)
                time.sleep(RETRY_SECONDS)
                continue
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            request = self._request(connection, stream)
            if not request:
                return
            level, step, rank = request["level"], request["step"], request["rank"]
            files = [File(**file) for file in request["files"]]
            copy = self._future(level, step, rank)
            try:
                for file in files:
                    self._keep(stream, level, step, file)
            except Exception as error:  # noqa: BLE001 (both ranks' saves raise it)
                failed = CheckpointError(
                    f"the copy of rank {rank} cannot be kept at the level {level} of its partner's node "
                    f"({type(error).__name__}: {error}): {remedy(error, self._spare(level), 'set partner: 0')}"
                )
                copy.set_exception(failed)
                _answer(connection, stream, {"error": str(failed)})
            else:
                copy.set_result(tuple(files))
                _answer(connection, stream, {"kept": True})

    def _request(self, connection: socket.socket, stream: BinaryIO) -> dict[str, Any] | None:
        """What a sender says first; None of whoever does not know the secret."""
        try:
            connection.settimeout(SECRET_SECONDS)
            given = stream.read(len(self.secret))
            if not hmac.compare_digest(given, self.secret.encode()):
                return None
            connection.settimeout(IDLE_SECONDS)
            return decoded(stream.readline(LINE_BYTES))
        except (OSError, ValueError):
            return None

    def _keep(self, stream: BinaryIO, level: str, step: int, file: File) -> None:
        """Write what comes into the file, over that of a removed version if there is one."""
        path = self._staging(level, step) / file.name
        take(str(self._spare(level) / file.name), str(path))
        checksum, left, block = Checksum(), file.bytes, memoryview(bytearray(BLOCK_BYTES))
        with path.open("r+b", buffering=0) as target:
            while left:
                count = stream.readinto(block[: min(left, len(block))])  # type: ignore[attr-defined]
                if not count:
                    raise ConnectionError(f"the sender hung up {left} bytes before the end")
                checksum.update(block[:count])
                write_all(target, block[:count])
                left -= count
            target.truncate(file.bytes)
        if checksum.hexdigest() != file.checksum:
            raise ValueError(f"{file.name} was changed on the way")


def _answer(connection: socket.socket, stream: BinaryIO, answer: dict[str, Any]) -> None:
    """Say the answer, and read what still comes: to close before would take the answer away from the sender."""
    with suppress(OSError):  # the sender is gone: its launcher knows
        connection.sendall(encoded(answer))
        connection.shutdown(socket.SHUT_WR)
        while stream.read(BLOCK_BYTES):
            pass


def _with_checksum(staging: Path, file: File) -> File:
    if file.checksum is not None:
        return file
    return dataclasses.replace(file, checksum=file_checksum(staging / file.name))


def _host(address: str) -> str:
    return address.rpartition(":")[0]

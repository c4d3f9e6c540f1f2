"""Connections of a library are ended from outside, and both sides notice."""

from __future__ import annotations

import socket
import threading

from ckptbench.common.connections import connections, shut_down


def test_a_thread_that_waits_on_a_connection_and_its_other_side_find_it_closed() -> None:
    own, other = socket.socketpair()
    before = connections()
    with socket.create_server(("127.0.0.1", 0)) as server:
        waiting, peer = socket.create_connection(server.getsockname()), server.accept()[0]
        made = connections() - before
        assert len(made) == 3
        heard: list[bytes] = []
        thread = threading.Thread(target=lambda: heard.append(waiting.recv(1)), daemon=True)
        thread.start()
        shut_down(made)
        thread.join(60)
        assert (heard, peer.recv(1)) == ([b""], b"")
        own.sendall(b"x")
        assert other.recv(1) == b"x", "it was there before"
        with socket.create_connection(server.getsockname()):
            server.accept()[0].close()
        waiting.close()
        peer.close()
    shut_down(made)  # all are gone
    own.close()
    other.close()

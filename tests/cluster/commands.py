"""Short commands, the error of this package, and waiting."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

TIMED_OUT = 124
PATIENCE_S = 300
"""For what must come. It costs nothing where it comes, and a machine under load may need it."""
PORTS = range(20000, 32000)
"""Below the range from which the kernel hands out ports of its own accord."""


class ClusterError(Exception):
    """A scheduler could not be started, asked or stopped; the message says what to do."""


def run(
    command: Sequence[str], environment: Mapping[str, str], timeout_s: float = PATIENCE_S
) -> subprocess.CompletedProcess[str]:
    """Run `command` to its end; one that takes longer ends with the status TIMED_OUT."""
    try:
        return subprocess.run(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        late = f"no answer within {timeout_s:.0f} s"
        return subprocess.CompletedProcess(command, TIMED_OUT, stdout="", stderr=late)


def check(
    command: Sequence[str], environment: Mapping[str, str], timeout_s: float = PATIENCE_S
) -> str:
    """What `command` printed on its standard output; an error with all it said if it failed."""
    done = run(command, environment, timeout_s)
    if done.returncode != 0:
        raise ClusterError(f"{' '.join(command)} ended with {done.returncode}: {said(done)}")
    return done.stdout


def said(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stdout + done.stderr).strip() or "(nothing)"


def poll(
    condition: Callable[[], bool], timeout_s: float = PATIENCE_S, interval_s: float = 0.05
) -> bool:
    """Whether `condition` came true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(interval_s)
    return True


def free_ports(count: int) -> list[int]:
    """Ports on which nobody listens now."""
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise ClusterError(
        f"no {count} free ports from {PORTS.start} to {PORTS.stop}: end what listens there"
    )

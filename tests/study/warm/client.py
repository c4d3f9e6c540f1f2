"""Stands where an environment's `bin/python` is expected, and has the environment's warm server run the program.

It hands over arguments, environment, working folder and every inherited descriptor, passes signals on, and ends as the
program ends. When this process dies, the server kills the program. It imports little: it is started for every rank.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from types import FrameType

SERVER, LOG = "server.sock", "server.log"
PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
HIGHEST_DESCRIPTOR = 31
DESCENDED = "--parent"
"""An option of what looks for the workflow among the processes that it descends from."""


def main() -> None:
    if sys.argv[1:4] == ["-P", "-m", "ckptbench.workflow"] and DESCENDED in sys.argv:
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    folder = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    inherited = [number for number in range(HIGHEST_DESCRIPTOR + 1) if is_inherited(number)]
    line = socket.socket(socket.AF_UNIX)
    line.connect(os.path.join(folder, SERVER))
    request = {
        "interpreter": os.path.abspath(__file__),
        "arguments": sys.argv[1:],
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "descriptors": inherited,
        "ignored": [n for n in PASSED_ON if signal.getsignal(n) is signal.SIG_IGN],
    }
    content = json.dumps(request).encode()
    line.sendall(bytes([int(os.environ.get("OMP_NUM_THREADS", "1"))]))
    socket.send_fds(line, [len(content).to_bytes(4, "big")], inherited)
    line.sendall(content)
    for number in PASSED_ON:
        if number not in request["ignored"]:
            signal.signal(number, lambda n, _: pass_on(line, n, _))
    status = line.recv(4, socket.MSG_WAITALL)
    if len(status) < 4:
        sys.exit(f"{folder}: the warm server is gone; see {LOG} in it")
    end_as(int.from_bytes(status, "big"))


def is_inherited(descriptor: int) -> bool:
    """Whether it came with the start of this process: what Python opens by itself is not inheritable."""
    try:
        return os.get_inheritable(descriptor)
    except OSError:
        return False


def pass_on(line: socket.socket, number: int, _: FrameType | None) -> None:
    line.send(bytes([number]))


def end_as(status: int) -> None:
    """End with the exit code or by the signal that `os.waitpid` told of the program."""
    if not os.WIFSIGNALED(status):
        os._exit(os.WEXITSTATUS(status))
    number = os.WTERMSIG(status)
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    signal.pause()


if __name__ == "__main__":
    main()

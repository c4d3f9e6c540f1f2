"""A program that a warm server forks lives and ends like one that its interpreter starts."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from checkout import wait_for
from warm.environments import warm_environments

from ckptbench.matrix.registry import FRAMEWORKS

FRAMEWORK = next(iter(FRAMEWORKS))
pytestmark = pytest.mark.frameworks(FRAMEWORK)
PROGRAM = """
import os, signal, sys, time
from pathlib import Path
folder, how = Path(sys.argv[1]), sys.argv[2]
print(os.environ["WORD"], Path.cwd() == folder, sys.stdin.read(), flush=True)
signal.signal(signal.SIGUSR1, lambda *_: (folder / "told").touch())
(folder / "pid").write_text(str(os.getpid()))
(folder / "begun").touch()
match how:
    case "exit": sys.exit(3)
    case "raise": raise ArithmeticError("on purpose")
    case "kill": os.kill(os.getpid(), signal.SIGKILL)
    case "count":
        import ctypes, numpy
        [library] = {l.split()[-1] for l in open("/proc/self/maps") if "numpy.libs/libopenblas" in l}
        print(ctypes.CDLL(library).openblas_get_num_threads64_(), "threads")
    case "wait":
        while True: time.sleep(0.01)
"""


def start(folder: Path, how: str, **environment: str) -> subprocess.Popen[str]:
    script = folder / "program.py"
    script.write_text(PROGRAM)
    return subprocess.Popen(
        [str(warm_environments() / FRAMEWORK / "bin" / "python"), str(script), str(folder), how],
        cwd=folder,
        env={**os.environ, "WORD": "from the environment", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(("how", "code"), [("exit", 3), ("raise", 1), ("kill", -signal.SIGKILL)])
def test_it_gets_what_its_client_got_and_its_client_ends_as_it_does(
    tmp_path: Path, how: str, code: int
) -> None:
    client = start(tmp_path, how)
    output, errors = client.communicate(timeout=600)
    assert output == "from the environment True \n"
    assert client.returncode == code
    assert ("ArithmeticError: on purpose" in errors) == (how == "raise")


@pytest.mark.parametrize("threads", ["1", "2"])
def test_it_computes_with_as_many_threads_as_its_client_is_told(
    tmp_path: Path, threads: str
) -> None:
    """OpenBLAS reads the number when NumPy is imported. With another one, some processors round a product otherwise."""
    client = start(tmp_path, "count", OMP_NUM_THREADS=threads, OPENBLAS_NUM_THREADS=threads)
    output, _ = client.communicate(timeout=600)
    assert output.splitlines()[1:] == [f"{threads} threads"]


def test_it_gets_the_signals_of_its_client_and_dies_with_it(tmp_path: Path) -> None:
    client = start(tmp_path, "wait")
    wait_for((tmp_path / "begun").exists, "the program")
    client.send_signal(signal.SIGUSR1)
    wait_for((tmp_path / "told").exists, "the signal")
    client.kill()
    client.wait()
    program = Path("/proc", (tmp_path / "pid").read_text())
    wait_for(lambda: not program.exists(), "the program to end")

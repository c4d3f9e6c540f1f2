"""Work that ends with its workflow: the worker, and all that it has started, whoever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.living import is_running

SOURCE = Path(__file__).resolve().parents[2] / "src"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCE)}
WORK = """
import os, subprocess, sys
from pathlib import Path
from ckptbench.environments.supervision import supervised
folder = Path(sys.argv[2])

def work():
    # As an installer that starts a compiler: only the first of them could ask the kernel for its parent's end.
    installer = subprocess.Popen(["sh", "-c", "sleep 600 & echo $! > " + str(folder / "compiler.partial") + "; wait"])
    (folder / "worker").write_text(str(os.getpid()))
    (folder / "installer").write_text(str(installer.pid))
    while not (folder / "compiler.partial").exists() or not (folder / "compiler.partial").read_text().endswith("\\n"):
        pass
    (folder / "compiler.partial").rename(folder / "compiler")
    return installer.wait()

sys.exit(supervised(work, int(sys.argv[1])))
"""
WORKFLOW = """
import os, subprocess, sys
subprocess.Popen([sys.executable, "-c", sys.argv[1], str(os.getpid()), sys.argv[2]]).wait()
"""


def wait_for(condition, seconds: float = 300) -> None:  # type: ignore[no-untyped-def]
    """The bound is for a machine under load."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("killed", "number"),
    [
        ("workflow", signal.SIGKILL),
        ("supervisor", signal.SIGKILL),
        ("supervisor", signal.SIGTERM),
        ("supervisor", signal.SIGINT),
        ("worker", signal.SIGKILL),
        ("worker", signal.SIGTERM),
    ],
)
def test_the_end_of_one_is_the_end_of_all_below_it(
    tmp_path: Path, killed: str, number: signal.Signals
) -> None:
    command = [sys.executable, "-c", WORKFLOW, WORK, str(tmp_path)]
    workflow = subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    wait_for((tmp_path / "compiler").exists)
    pids = {
        name: int((tmp_path / name).read_text()) for name in ("worker", "installer", "compiler")
    }
    pids |= {"workflow": workflow.pid, "supervisor": psutil.Process(pids["worker"]).ppid()}
    assert all(map(is_running, pids.values()))
    os.kill(pids[killed], number)
    workflow.wait(300)
    wait_for(lambda: not any(map(is_running, pids.values())))


def test_a_workflow_that_was_gone_before_the_work_began_gets_none(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WORK, str(os.getppid()), str(tmp_path)]  # its grandparent
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "the workflow that started this process is gone" in done.stderr
    assert not (
        tmp_path / "worker"
    ).exists()  # not even for a moment: it is asked before the worker begins


@pytest.mark.parametrize(
    ("work", "status"), [("lambda: 0", 0), ("lambda: 3", 3), ("lambda: 1 // 0", 1)]
)
def test_the_status_of_the_work_is_that_of_the_whole(work: str, status: int) -> None:
    code = (
        "import os, sys; from ckptbench.environments.supervision import supervised; "
        f"sys.exit(supervised({work}, os.getppid()))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert ("ZeroDivisionError" in done.stderr) == (work == "lambda: 1 // 0")

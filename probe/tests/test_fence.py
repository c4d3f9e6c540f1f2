"""Whatever goes wrong in the probe, the training goes on as without it, and a check says that it cannot tell."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ckptbench_probe.check import dcp, orbax, readers, saves
from ckptbench_probe.check.given import CHECKER
from ckptbench_probe.check.one_save import Given
from ckptbench_probe.harmless import harmless
from ckptbench_probe.main import main
from ckptbench_probe.variables import CHECK, FOLDER

PROGRAM = Path(__file__).with_name("fence.py")


class LibraryError(BaseException):
    """As those of `torch.distributed.checkpoint`."""


class PreemptedError(Exception):
    """As a program raises it in its handler of a signal."""


@pytest.mark.parametrize("check", ["", "saves", "resume"])
def test_no_hook_lets_an_error_of_the_probe_through(check: str, tmp_path: Path) -> None:
    """Every function of the probe that a hook calls raises in turn: what is added is tried as well."""
    path = os.pathsep.join(sys.path)
    variables = {**os.environ, CHECK: check, FOLDER: str(tmp_path), "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    *through, last = done.stdout.splitlines() or [done.stderr]
    assert through == []
    assert last.endswith("that were handed over")


READERS = [
    one
    for module in (readers, dcp, orbax)
    for _, one in inspect.getmembers(module, inspect.isfunction)
    if list(inspect.signature(one).parameters) == ["given"] and one.__name__[0] != "_"
]


def test_every_engine_has_a_reader_here() -> None:
    names = {f"{one.__module__.rpartition('.')[2]}.{one.__name__}" for one in READERS}
    assert names == {"readers.torch_file", "readers.safetensors_file", "readers.keras_file", "dcp.read", "orbax.read"}  # fmt: skip


def raises(given: Given) -> Any:
    raise LibraryError("no such file")


def raises_later(given: Given) -> Iterator[Any]:
    yield ("weight",), 1
    raise LibraryError


@pytest.mark.parametrize("reader", [*READERS, raises, raises_later])
def test_what_a_reader_raises_is_the_reason(reader: Callable[[Given], Any]) -> None:
    given = Given(1, "torch.save", "/no/such/file", digests={("weight",): "1"})
    found = CHECKER._compare(given, reader)
    assert isinstance(found, str)
    assert found.startswith("its engine cannot read it (")


def test_the_end_of_a_training_goes_through() -> None:
    for error in (KeyboardInterrupt, SystemExit):
        with pytest.raises(error):
            harmless(raising)(error())


def raising(error: BaseException) -> None:
    raise error


def test_what_a_handler_of_the_program_raises_goes_through() -> None:
    def handler(*_: Any) -> None:
        raise PreemptedError

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(PreemptedError):
            harmless(os.kill)(os.getpid(), signal.SIGUSR1)
        assert harmless(raising)(PreemptedError()) is None
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_check_that_fails_itself_cannot_tell(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(saves, "ranks", raises)
    words = ["check", "saves", "--folder", str(tmp_path), "--", sys.executable, "-c", ""]
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        with pytest.raises(SystemExit) as ended:
            main(words)
    finally:
        signal.pthread_sigmask(
            signal.SIG_SETMASK, blocked
        )  # the command blocks signals until its end
    assert ended.value.code == 2


def test_what_is_said_is_wrapped_on_a_terminal_alone(tmp_path: Path) -> None:
    program = "from ckptbench_probe.harmless import say; say('one two three four ' * 9)"
    leader, follower = os.openpty()
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=variables, stderr=follower, timeout=60, check=False)  # fmt: skip
    os.close(follower)
    lines = os.read(leader, 10_000).decode().splitlines()
    os.close(leader)
    assert done.returncode == 0
    assert len(lines) > 2
    assert all(len(line) <= 80 for line in lines)
    assert all(line.startswith("  ") for line in lines[1:])
    (whole,) = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, timeout=60, check=False).stderr.splitlines()  # fmt: skip
    assert whole.split() == " ".join(lines).split()

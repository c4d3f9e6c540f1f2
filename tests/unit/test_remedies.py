"""Every error of the operating system is told in one line with its place, and with a remedy where one is certain."""

from __future__ import annotations

import errno
import json
import logging
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from run_folders import cell

from ckptbench.common import remedies
from ckptbench.common.files import naming, write_json
from ckptbench.common.remedies import blame, in_one_line, is_full, mount_of, remedy
from ckptbench.launch.child_process import ChildProcess, LogFollower
from ckptbench.run.events import End
from ckptbench.run.recorder import Recorder
from ckptbench.workflow import frame

ROOT = Path(__file__).resolve().parents[2]
PLACE = Path("/no/such/place")
REMEDIES = {
    errno.ENOSPC: "MB are free on /: free some",
    errno.EDQUOT: "your quota on / is used up: free some",
    errno.EACCES: f"let this user write {PLACE}",
    errno.EPERM: f"let this user write {PLACE}",
    errno.EROFS: "/ is mounted read-only: mount it for writing",
}


def error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize(("number", "words"), REMEDIES.items(), ids=errno.errorcode.get)
def test_each_number_has_its_own_remedy(number: int, words: str) -> None:
    assert remedy(error(number), PLACE).endswith(words)
    said = blame(error(number), PLACE, "use another folder")
    assert said.startswith(f"{os.strerror(number)}; ")
    assert said.endswith(f"{words}, or use another folder")
    assert "\n" not in said


OTHERS = (
    errno.EIO,
    errno.ESTALE,
    errno.EMFILE,
    errno.EINVAL,
    errno.ENOSYS,
    errno.ENOMEM,
    errno.EFBIG,
)


@pytest.mark.parametrize("number", OTHERS, ids=errno.errorcode.get)
def test_other_errors_are_told_with_their_place_and_the_words_of_the_system(number: int) -> None:
    words = os.strerror(number)
    assert blame(error(number), PLACE, "use another folder") == f"{words}; use another folder"
    said = f"{words}; correct what the message names, and start again"
    assert blame(error(number), PLACE) == in_one_line(error(number)) == said
    assert in_one_line(OSError(number, words, "/x/y")) == f"/x/y: {said}"


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EEXIST, errno.EISDIR, errno.EBADF])
def test_what_names_no_file_may_be_a_fault_of_the_code(number: int) -> None:
    assert in_one_line(error(number)) is None, "the traceback helps"
    told = in_one_line(OSError(number, os.strerror(number), "x/y"))
    assert told is not None
    assert told.startswith(f"x/y: {os.strerror(number)}; ")


def test_what_is_no_error_of_the_system_is_a_fault_of_the_code() -> None:
    assert in_one_line(ValueError("3")) is None
    assert in_one_line(OSError("3")) is None


def test_a_file_that_may_not_be_read_is_to_be_made_readable() -> None:
    assert remedy(error(errno.EACCES), PLACE, reading=True) == f"let this user read {PLACE}"


def test_the_file_that_the_error_names_is_the_place() -> None:
    named = OSError(errno.EACCES, "x", "/proc/version")
    assert remedy(named, PLACE) == "let this user write /proc/version"
    assert mount_of(Path("/proc/version")) == Path("/proc")


def test_an_error_of_an_open_file_is_given_its_path() -> None:
    with (
        pytest.raises(OSError, match="No space left on device: '/some/file'"),
        naming("/some/file"),
    ):
        raise error(errno.ENOSPC)


FULL = Path("/dev/full")


def test_what_is_written_to_a_full_disk_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "plan.json.partial").symlink_to(FULL)
    with pytest.raises(OSError, match=r"No space left on device: '.*/plan\.json'"):
        write_json(tmp_path / "plan.json", {})
    recorder = Recorder(tmp_path / "trace")
    os.dup2(os.open(FULL, os.O_WRONLY), recorder._file.fileno())
    with pytest.raises(OSError, match=r"No space left on device: '.*/trace'"):
        recorder.write(End(monotonic_ns=1))


SCRIPT = """
import logging, sys
from pathlib import Path
from ckptbench.workflow.frame import run_script
def work():
    for _ in range(3):
        logging.getLogger("ckptbench").info("at work")
    raise {error}
sys.exit(run_script(work, Path({log!r})))
"""


def script(folder: Path, error: str, log: Path) -> subprocess.CompletedProcess[str]:
    code = SCRIPT.format(error=error, log=str(log))
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)  # fmt: skip


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("OSError(28, 'No space left on device', '/x/y')", "OSError: /x/y: No space left on device; "),
        ("OSError(24, 'Too many open files')", "OSError: Too many open files; correct what"),
        ("MemoryError()", "MemoryError: no memory is left (MemoryError): use fewer ranks"),
    ],
)  # fmt: skip
def test_a_script_ends_with_the_cause_and_its_remedy_and_no_traceback(
    tmp_path: Path, error: str, words: str
) -> None:
    done = script(tmp_path, error, tmp_path / "logs" / "log")
    *work, last = done.stderr.splitlines()
    assert (done.returncode, work) == (1, ["at work"] * 3)
    assert last.startswith(words)
    assert (tmp_path / "logs" / "log").read_text() == done.stderr


def test_a_fault_of_the_code_keeps_its_traceback(tmp_path: Path) -> None:
    done = script(tmp_path, "KeyError('x')", tmp_path / "log")
    assert "Traceback" in done.stderr
    assert script(tmp_path, "FileNotFoundError(2, 'x', 'y')", tmp_path / "log").returncode == 1


def test_a_log_on_a_full_disk_is_told_of_once_and_ends_nothing(tmp_path: Path) -> None:
    done = script(tmp_path, "OSError(30, 'Read-only file system', '/x')", FULL)
    assert done.stderr.count("the log /dev/full cannot be written: No space left on device; ") == 1
    assert done.stderr.count("at work") == 3
    assert "Traceback" not in done.stderr
    assert "Logging error" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("OSError: /x: Read-only file system; ")


def test_a_log_that_cannot_be_opened_is_told_of_and_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "logs").touch()
    done = script(tmp_path, "OSError(28, 'No space left', '/x')", tmp_path / "logs" / "log")
    assert done.stderr.startswith(
        f"the log {tmp_path}/logs/log cannot be written: File exists; correct"
    )
    assert done.stderr.count("at work") == 3


def test_a_library_that_stumbles_over_a_full_disk_is_no_fault_of_the_code(tmp_path: Path) -> None:
    """As Matplotlib's writer of PDF does when it closes its file."""
    code = SCRIPT.replace(
        "    raise {error}",
        "    try:\n        raise OSError(28, 'No space left on device')\n    finally:\n        None.pos",
    ).format(log=str(FULL))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("OSError: No space left on device; ")
    assert "Traceback" not in done.stderr


def test_a_workflow_in_a_full_folder_ends_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame.end_where_full(tmp_path)
    for number in (errno.ENOSPC, errno.EDQUOT):
        opened = partial(fail, error(number))
        monkeypatch.setattr(frame.tempfile, "TemporaryFile", opened)
        with pytest.raises(SystemExit, match=r"^nothing can be written here: .*; .*: free some$"):
            frame.end_where_full(tmp_path)
    monkeypatch.setattr(frame.tempfile, "TemporaryFile", partial(fail, error(errno.EROFS)))
    frame.end_where_full(tmp_path)  # a dry run needs no more


def fail(error: OSError, **_options: object) -> None:
    raise error


def test_checkpoints_go_to_no_other_disk_than_that_which_a_link_names(tmp_path: Path) -> None:
    """The place of a scratch that is gone must not be made again on the disk of the system."""
    (tmp_path / "scratch").symlink_to(tmp_path / "gone" / "ck")
    files = {name: str(tmp_path / name) for name in ("dataset", "environment", "lock", "runs")}
    options = {
        **files,
        "cell": json.dumps(cell().to_json()),
        "training": "{}",
        "checkpoints": str(tmp_path / "scratch"),
    }
    command = [
        sys.executable,
        *("-m", "ckptbench.workflow", "train-cell"),
        *(f"--{name}={value}" for name, value in options.items()),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("LaunchError: no checkpoint can be written to ")
    assert line.endswith(
        f"scratch is a link to {tmp_path}/gone/ck, which is not there: make that folder, or remove the link"
    )
    assert not (tmp_path / "gone").exists()


def test_other_errors_of_logging_are_still_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    handler = frame.LogFile(tmp_path / "log", append=False)
    handler.emit(logging.LogRecord("x", 20, "y", 1, "%d", ("no number",), None))
    handler.close()
    assert "Logging error" in capsys.readouterr().err


def test_a_rank_whose_log_is_on_a_full_disk_is_said_to_have_no_room_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = [LogFollower(tmp_path / "rank-0.log")]
    silent = ChildProcess(None, None, logs, 0)  # type: ignore[arg-type]
    assert silent.tails().strip() == f"(nothing in {tmp_path}/rank-0.log)"
    status = os.statvfs_result((1, 1, 10**9, 0, 0, 100, 9, 9, 0, 255))
    monkeypatch.setattr(remedies, "_status", lambda place: status)
    assert is_full(tmp_path)
    assert silent.tails().strip() == (
        f"(nothing in {tmp_path}/rank-0.log: 0 MB are free on {mount_of(tmp_path)}, so free some)"
    )

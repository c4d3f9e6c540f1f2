"""The runs of a comparison on disk: what is there is not made again, and what was made from another command is left out."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckptbench_probe.check.processes import PAUSE_S
from ckptbench_probe.check.runs import GRACE_S, LOG, Ended
from ckptbench_probe.check.runs import run as run_once
from ckptbench_probe.comparing.settings import Setting
from ckptbench_probe.harmless import say
from ckptbench_probe.reading import UnreadableError, read
from ckptbench_probe.screen import NOTHING
from ckptbench_probe.variables import FOLDER

FORMAT = 1
RECORD = "run.json"
"""Written when a run has ended: a folder without it is of a run that was cut off."""
RUNS, CHECKPOINTS, LOCK = "runs", "checkpoints", "lock"
OF_TRAINING = (".py", ".sh", ".yaml", ".yml", ".json", ".toml")
"""Files whose content is part of a command that names them."""
TAIL_LINES = 6
LONGEST_NAME = 80
OF_TERMINALS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
AN_ERROR = re.compile(r"\b(?:[A-Z]\w*(?:Error|Exception|Exit)|error): .")


class OutputError(Exception):
    """The output folder cannot be used; the message is one line for the user."""


@dataclass(frozen=True)
class Planned:
    """One run of a setting."""

    setting: Setting
    block: int
    folder: Path
    """For its traces, its log and its record."""
    checkpoints: Path

    @property
    def label(self) -> str:
        return f"{self.setting.label} in block {self.block}"

    @property
    def command(self) -> list[str]:
        return self.setting.command(self.checkpoints)

    def record(self) -> dict[str, Any] | None:
        """None where it was not made, or not to its end."""
        return _read(self.folder / RECORD)

    @property
    def is_there(self) -> bool:
        record = self.record()
        return record is not None and not record["failed"]


def plan(output: Path, order: Sequence[tuple[int, Setting]]) -> list[Planned]:
    """A run is named by its setting, and by a digest of its command, its directory and the scripts that the command names."""
    found = []
    for block, setting in order:
        digest = hashlib.sha256(json.dumps(_made_from(setting)).encode()).hexdigest()[:8]
        title = re.sub(r"[^A-Za-z0-9_.=-]+", "_", setting.label)[:LONGEST_NAME]
        name = f"{title}-{digest}-block{block}"
        found.append(Planned(setting, block, output / RUNS / name, output / CHECKPOINTS / name))
    return found


def _made_from(setting: Setting) -> list[Any]:
    scripts = [Path(word) for word in setting.words if word.endswith(OF_TRAINING)]
    contents = [hashlib.sha256(path.read_bytes()).hexdigest() for path in scripts if path.is_file()]
    return [os.getcwd(), setting.words, contents]


def others(output: Path, planned: Sequence[Planned]) -> list[str]:
    """Labels of the ended runs in the folder that are not of this plan, one for each. Those of more repeats are left out."""
    own = {one.folder.name.rpartition("-")[0] for one in planned}
    records = [
        (path.parent.name.rpartition("-")[0], _read(path))
        for path in sorted((output / RUNS).glob(f"*/{RECORD}"))
    ]
    return [record["setting"] for name, record in records if record and name not in own]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    is_ours = isinstance(content, dict) and content.get("format") == FORMAT
    return content if is_ours else None


@contextmanager
def locked(output: Path) -> Iterator[None]:
    """Raises OutputError where another comparison runs in the folder, or it cannot be written to."""
    try:
        (output / RUNS).mkdir(parents=True, exist_ok=True)
        file = (output / LOCK).open("w")
    except OSError as error:
        raise OutputError(f"{output} cannot be written to ({error.strerror}): name another folder by --folder") from error  # fmt: skip
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputError(
                f"another comparison runs in {output}: wait for it, or name another folder by --folder"
            ) from None
        except OSError:
            say(f"{output} has no file locks: start no second comparison in it")
        yield


def make(planned: Planned, limit_s: float | None) -> dict[str, Any]:
    """Run it from an empty folder, and return its record."""
    for folder in (planned.folder, planned.checkpoints):
        if folder.exists():
            shutil.rmtree(folder)
    planned.checkpoints.mkdir(parents=True)
    try:
        ended = run_once(planned.command, planned.folder, check="", limit_s=limit_s, told={})
        reason, lines = _outcome(ended, planned.folder)
    finally:
        shutil.rmtree(planned.checkpoints, ignore_errors=True)
    record = {
        "format": FORMAT,
        "setting": planned.setting.label,
        "values": dict(planned.setting.values),
        "block": planned.block,
        "command": planned.command,
        "took_s": ended.took_s,
        "failed": reason,
        "last_lines": lines,
    }
    written = planned.folder / f"{RECORD}.tmp"
    written.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    written.replace(planned.folder / RECORD)
    return record


def _outcome(ended: Ended, folder: Path) -> tuple[str, list[str]]:
    """Why the run does not count, and the last lines of its log; both empty where it does."""
    if not (folder / LOG).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        return "its log was removed while it ran: let the command remove nothing outside its {folder}", []  # fmt: skip
    if ended.failed:
        return _failure(ended.reason(), folder / LOG)
    try:
        return "" if read(folder).trained else NOTHING, []
    except UnreadableError as error:
        return str(error), []


def _failure(reason: str, log: Path) -> tuple[str, list[str]]:
    """The reason with the last line that looks like an error, as launchers print a page after it, and the last lines of the log."""
    text = OF_TERMINALS.sub("", log.read_text(errors="replace"))
    lines = ["".join(filter(str.isprintable, line)).rstrip() for line in text.splitlines()]
    lines = [line for line in lines if line.strip()]
    errors = [line.strip() for line in lines if AN_ERROR.search(line)]
    how = reason.partition(", its last line")[0]
    said = (errors or lines)[-1:]
    return f"{how}: {said[0].strip()[:200]}" if said else how, lines[-TAIL_LINES:]


def end_left_over(output: Path) -> int:
    """End the processes of runs whose comparison was killed, as they would slow the next runs. Returns their number."""
    mark = os.fsencode(f"{FOLDER}={output / RUNS}{os.sep}")
    first = left = _marked(mark)
    for number, patience_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        for process in left:
            try:
                os.kill(process, number)
            except ProcessLookupError:
                continue  # it has ended meanwhile
        until = time.monotonic() + patience_s
        while left and time.monotonic() < until:
            time.sleep(PAUSE_S)
            left = _marked(mark)
    return len(first)


def _marked(mark: bytes) -> list[int]:
    """Living processes of this user whose environment has a variable that begins so."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                variables = (entry / "environ").read_bytes()
            except OSError:
                continue  # another user's, or it has ended
            if any(one.startswith(mark) for one in variables.split(b"\0")):
                found.append(int(entry.name))
    return found

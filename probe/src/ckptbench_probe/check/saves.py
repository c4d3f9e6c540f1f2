"""`ckptbench-probe check saves -- COMMAND`: is each file the state of one update, whole?"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ckptbench_probe.check.checkpoints import Checkpoint, checkpoints, ranks
from ckptbench_probe.check.extent import listed, unread
from ckptbench_probe.check.folders import FOLDER
from ckptbench_probe.check.saved import CANNOT_TELL, MIXED, TORN, WHOLE, Saved
from ckptbench_probe.harmless import say, say_lines
from ckptbench_probe.launcher import CannotStartError, environment, launch, run_name, words_of
from ckptbench_probe.pointers import moves, pointed_before_sync, pointed_too_early
from ckptbench_probe.reading import read
from ckptbench_probe.screen import NOTHING, WIDTH
from ckptbench_probe.variables import CHECK

if TYPE_CHECKING:
    from ckptbench_probe.options import Verbs

FORMAT = 2
REPORT = "saves.json"
SOUND, IS_TORN, EARLY = "sound", "torn", "pointed too early"
CODES = {SOUND: 0, IS_TORN: 1, CANNOT_TELL: 2, MIXED: 3, EARLY: 4}
MOST_ROWS = 4
"""Checkpoints of one verdict that are told a line each."""
MOST_UPDATES = 8


def add(verbs: Verbs) -> None:
    verb = verbs.add_parser(
        "saves",
        help="whether each file is the state of one update, whole",
        usage="ckptbench-probe check saves [--folder FOLDER] -- COMMAND ...",
        description="Runs the command, and loads each checkpoint as soon as it is finished. Exit codes: 0 all are whole, 1 one is torn, 2 cannot tell, 3 nothing tore, but a save received tensors of several updates (such as a best model with the newest optimizer), 4 nothing tore, but a pointer (such as latest) was moved to a checkpoint before it was finished.",
    )
    verb.add_argument(
        "--folder",
        type=Path,
        default=Path(FOLDER),
        help="folder for the results; default: %(default)s",
    )
    verb.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        help="after --, as you start it today: torchrun, srun, python",
    )


def run(options: argparse.Namespace) -> int:
    command = words_of(options.command)
    if not command:
        say("no command: write it after --, as in ckptbench-probe check saves -- torchrun train.py")
        return CODES[CANNOT_TELL]
    folder, name, begun = options.folder.resolve(), run_name(), time.time()
    try:
        (folder / name).mkdir(parents=True, exist_ok=True)
        status = launch(command, {**environment(os.environ, folder / name, name), CHECK: "saves"})
    except OSError as error:
        say(f"{folder} cannot be written to ({error.strerror}): name another by --folder")
        return CODES[CANNOT_TELL]
    except CannotStartError as error:
        say(str(error))
        return CODES[CANNOT_TELL]
    if int(os.environ.get("SLURM_PROCID", "0")):
        return CODES[SOUND]  # the launcher of the first task tells of all
    return tell(folder, name, os.waitstatus_to_exitcode(status), begun)


def tell(folder: Path, name: str, code: int, begun: float) -> int:
    """What was found, on standard error and in saves.json; the exit code of the check.

    `code`: of the command; `begun`: when it was started, in seconds since 1970.
    """
    seen = ranks(folder / name, name)
    found = checkpoints(seen)
    troubles = [trouble for rank in seen for trouble in rank.troubles]
    run = read(folder / name, name)
    early = pointed_too_early(run)
    verdict = _verdict(found, code, troubles, early)
    trained = sum(rank.trains for rank in seen)
    beside = _beside(found, begun)
    lines = _lines(found, verdict, code, troubles, beside) if trained else [NOTHING]
    sentence = _sentence(found, verdict, code, troubles, bool(beside)) if trained else NOTHING
    lines += [_line("pointer", text) for text in (*early, *pointed_before_sync(run))]
    content = {
        "format": FORMAT, "exit_code": CODES[verdict], "verdict": verdict, "ranks": trained, "command_exit_code": code,
        "lines": [sentence], "checkpoints": [one.as_dict() for one in found], "pointers": moves(run), "not_compared": beside, "pointed_too_early": early, "troubles": troubles, "runs": str(folder / name),
    }  # fmt: skip
    try:
        (folder / REPORT).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        lines.append(f"{folder} cannot be written to ({error.strerror}): there is no {REPORT}")
    say_lines(lines)
    return CODES[verdict]


def _verdict(found: list[Checkpoint], code: int, troubles: list[str], early: list[str]) -> str:
    verdicts = {one.verdict for one in found}
    if TORN in verdicts:
        return IS_TORN
    if early:
        return EARLY
    if not found or CANNOT_TELL in verdicts or troubles or code != 0:
        return CANNOT_TELL
    return MIXED if MIXED in verdicts else SOUND


def _beside(found: list[Checkpoint], begun: float) -> list[str]:
    """Binary files that were written beside checkpoints, by no engine that is known: a part of a checkpoint may be among them."""
    paths = {path for one in found for save in one.saves for path in (save.path, *save.files)}
    folders = {Path(path).parent for path in paths if os.path.isabs(path)}
    return sorted(
        os.path.join(folder.name, name)
        for folder in folders
        for name in unread(folder, paths, since=begun, below=False)
    )


def _lines(
    found: list[Checkpoint], verdict: str, code: int, troubles: list[str], beside: list[str]
) -> list[str]:
    """The verdict, and then why."""
    lines = [_line("verdict", _sentence(found, verdict, code, troubles, bool(beside)))]
    for kind, name in ((TORN, "torn"), (CANNOT_TELL, "cannot tell"), (MIXED, "mixed")):
        rows = [one for one in found if one.verdict == kind]
        lines += [
            _line(name, f"{os.path.basename(one.path)}: {one.text}") for one in rows[:MOST_ROWS]
        ]
        if len(rows) > MOST_ROWS:
            lines.append(_line(name, f"{len(rows) - MOST_ROWS} more, in {REPORT}"))
    lines += [
        _line("cannot tell", f"a part of the check is missing ({trouble})")
        for trouble in list(dict.fromkeys(troubles))[:MOST_ROWS]
    ]
    saves = [save for one in found for save in one.saves]
    whole = [save for save in saves if save.verdict == WHOLE]
    known = {one.state_of for one in whole if one.state_of is not None}
    given = {one.update for one in whole if one.state_of is None}
    if known:
        lines.append(_line("whole", f"of update {_listed(known)}"))
    if given:
        lines.append(_line("whole", f"as passed to the save after update {_listed(given)}"))
    compared, values = sum(one.compared for one in saves), sum(one.values for one in saves)
    if compared:
        others = f" and {values:,} other values" if values else ""
        lines.append(_line("compared", f"{compared:,} tensors{others}{_left(saves)}"))
    if beside:
        lines.append(_line("not compared", f"{listed(beside)}: no engine that is known wrote them"))
    return lines


def _left(saves: list[Saved]) -> str:
    number = sum(one.not_compared for one in saves)
    names = list(dict.fromkeys(name for one in saves for name in one.left))[:MOST_ROWS]
    more = f", ... ({number:,} in all)" if number > len(names) else ""
    return f"; not compared: {', '.join(names)}{more}" if names else ""


def _line(name: str, text: str) -> str:
    return f"{name:<{WIDTH}}{text}"


def _sentence(
    found: list[Checkpoint], verdict: str, code: int, troubles: list[str], more: bool
) -> str:
    """`more`: whether other files were written beside the checkpoints."""
    if not found:
        return "cannot tell: nothing was saved by an engine that the probe knows"
    if verdict == IS_TORN:
        torn = sum(one.verdict == TORN for one in found)
        return f"TORN: {torn} of {_number(found)} {'is' if torn == 1 else 'are'} not the state of one update"
    if verdict == EARLY:
        return "pointed too early: a kill can leave a pointer at a checkpoint that is not whole"
    if verdict == MIXED:
        mixed = sum(one.verdict == MIXED for one in found)
        return f"mixed as given: {mixed} of {_number(found)} {'has' if mixed == 1 else 'have'} tensors of several updates, but nothing tore: the program passed them to the save"
    if verdict == SOUND:
        if more:
            return f"sound in what was compared, which was not every file: {_number(found)}{_of_files(found)}"
        whole = "the only checkpoint is" if len(found) == 1 else f"all {len(found)} checkpoints are"
        return f"sound: {whole} whole{_of_files(found)}"
    unknown = sum(one.verdict == CANNOT_TELL for one in found)
    if unknown:
        return f"cannot tell: {unknown} of {_number(found)} could not be compared"
    if troubles:
        return "cannot tell: the check itself has failed in part"
    how = f"with exit code {code}" if code >= 0 else f"by signal {-code}"
    return f"cannot tell: what was saved is whole, but the command has ended {how}"


def _of_files(found: list[Checkpoint]) -> str:
    """Where they have several."""
    numbers = {sum(len(save.files) for save in one.saves) for one in found}
    if numbers == {1}:
        return ""
    least, most = min(numbers), max(numbers)
    return f", of {most} files each" if least == most else f", of {least} to {most} files"


def _number(found: list[Checkpoint]) -> str:
    return "1 checkpoint" if len(found) == 1 else f"{len(found)} checkpoints"


def _listed(updates: set[int]) -> str:
    first = sorted(updates)
    shown = ", ".join(map(str, first[:MOST_UPDATES]))
    return shown + (f", ... {first[-1]}" if len(first) > MOST_UPDATES else "")

"""The submission file: options of qsub in `#PBS` lines, then what runs on the first node."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from submitit.core.utils import JobPaths

from submitit_pbs import shell
from submitit_pbs.parameters import PbsParameters
from submitit_qsub import clock, quoting

FOLLOWS = "SUBMITIT_PBS_FOLLOWS"
"""Set in the file of a job that goes on with the work of an earlier one: submitit's id of that."""
JOB_ID = "SUBMITIT_PBS_JOB_ID"
RESTARTED = "SUBMITIT_PBS_RESTARTED"
"""1 in a job that has run before, as its log shows, or whose work it goes on with; else 0."""

_LISTS = {"-v": ",", "-M": ",", "-m": ""}
"""Options that PBS takes once, and what stands between two parts of their argument: of several lines it keeps the last."""

# PBS_JOBID is 123.server, or 123[4].server in an array: 123 and 123_4 to submitit.
_OWN_ID = """\
job=${PBS_JOBID%%.*}
job=${job/\\[/_}
job=${job/\\]/}"""


def script(parameters: PbsParameters, command: str, folder: Path, subjobs: int | None) -> str:
    """The text of the submission file of a job (`subjobs` is None) or of an array."""
    options = [*_options(parameters, folder)]
    if subjobs is not None:
        most = parameters.array_parallelism
        limit = f"%{min(subjobs, int(most))}" if most else ""
        options.append(f"-J 0-{subjobs - 1}{limit}")
    options.extend(joined(parameters.extra))
    return "\n".join(
        [
            "#!/bin/bash",
            *(f"#PBS {option}" for option in options),
            "",
            *clock.lines(parameters.stop_after_s),
            _OWN_ID,
            f"export {JOB_ID}=${{{FOLLOWS}:-$job}}",
            f"unset {FOLLOWS} job",
            'cd "$PBS_O_WORKDIR"',
            *_redirections(parameters, folder),
            *parameters.setup,
            "export SUBMITIT_EXECUTOR=pbs",
            # The signals that PBS sends must reach Python.
            f"exec {command}",
            "",
        ]
    )


def joined(extra: Sequence[str]) -> list[str]:
    """Further options, with each list in one line."""
    lines = list(extra)
    for option, divider in _LISTS.items():
        split = [quoting.arguments(line, option) for line in lines]
        found = [argument for arguments, _ in split for argument in arguments]
        if len(found) > 1:
            rests = [rest for _, rest in split if rest]
            lines = [*rests, f"{option} {divider.join(found)}"]
    return lines


def continuation(text: str, job_id: str) -> str:
    """The submission file of a job that goes on with the work of `job_id`, from that of this job or of its array. It names
    the job itself: `qsub -v` would take the place of a `-v` in the file."""
    alone = re.sub(r"^#PBS -J .*\n", "", text, flags=re.MULTILINE)
    return alone.replace(_OWN_ID, f"{FOLLOWS}={job_id}\n{_OWN_ID}", 1)


def quoted(folder: str) -> str:
    """The folder, in quotes where `-o` and `-e` need them. Raises ValueError for what they do not take.

    Seen with OpenPBS 23.06.06: quotes keep all of ASCII but `"`, also `:` and `,`. It takes no other letters.
    """
    for character in quoting.line(folder, "the folder"):
        if character == '"' or not character.isascii():
            raise quoting.refused(folder, "the folder", character, "-o and -e do not take")
    return folder if re.fullmatch(r"[\w./+-]+", folder, re.ASCII) else f'"{folder}"'


def _options(parameters: PbsParameters, folder: Path) -> list[str]:
    # PBS's own messages; the job itself writes to the files that submitit reads.
    messages = JobPaths.get_first_id_independent_folder(folder)
    options = [
        f"-N {quoting.job_name(parameters.name)}",
        f"-S {shell.path(folder)}",
        "-V",
        "-r y",
        "-j n",
    ]
    place = quoted(f"{messages}/")
    options += [f"-o {place}", f"-e {place}"]
    if parameters.queue:
        options.append(f"-q {parameters.queue}")
    if parameters.account:
        options.append(f"{parameters.account_option} {parameters.account}")
    options.append(f"-l select={parameters.select}")
    if parameters.placement:
        options.append(f"-l place={parameters.placement}")
    return [*options, f"-l walltime={parameters.walltime}"]


def _redirections(parameters: PbsParameters, folder: Path) -> list[str]:
    """PBS cannot name logs by job id, and keeps them from sight until the job has ended."""
    paths = JobPaths(folder)
    stdout = _with_variables(paths.stdout)
    stderr = "2>&1" if parameters.stderr_to_stdout else f"2>> {_with_variables(paths.stderr)}"
    return [
        f"mkdir -p {_with_variables(paths.stdout.parent)}",
        f"[ -e {stdout} ]; export {RESTARTED}=$((1 - $?))",
        f"exec >> {stdout} {stderr}",
    ]


def _with_variables(path: Path) -> str:
    """submitit's tags as variables, quoted for the shell."""
    text = re.sub(r'([\\"$`])', r"\\\1", str(path))
    for tag, value in {
        "%j": f"${{{JOB_ID}}}",
        "%A": f"${{{JOB_ID}%%_*}}",
        "%a": f"${{{JOB_ID}##*_}}",
        "%t": "0",
    }.items():
        text = text.replace(tag, value)
    return f'"{text}"'

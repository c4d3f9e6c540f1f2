"""The submission file: options of qsub in `#PBS` lines, then what runs on the first node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from submitit.core.utils import JobPaths

from submitit_pbs import quoting, shell
from submitit_pbs.parameters import Parameters

FOLLOWS = "SUBMITIT_PBS_FOLLOWS"
"""Given to a job that goes on with the work of an earlier one: submitit's id of that."""
JOB_ID = "SUBMITIT_PBS_JOB_ID"
STOP_AT = "SUBMITIT_PBS_STOP_AT"
"""In seconds since the host was started: its wall clock may be set."""

# PBS_JOBID is 123.server, or 123[4].server in an array: 123 and 123_4 to submitit.
_OWN_ID = """\
job=${PBS_JOBID%%.*}
job=${job/\\[/_}
job=${job/\\]/}"""


def script(parameters: Parameters, command: str, folder: Path, subjobs: int | None) -> str:
    """The text of the submission file of a job (`subjobs` is None) or of an array."""
    options = [*_options(parameters, folder)]
    if subjobs is not None:
        most = parameters.array_parallelism
        limit = f"%{min(subjobs, int(most))}" if most else ""
        options.append(f"-J 0-{subjobs - 1}{limit}")
    options.extend(parameters.extra)
    return "\n".join(
        [
            "#!/bin/bash",
            *(f"#PBS {option}" for option in options),
            "",
            *_stop_at(parameters),
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


def single(text: str) -> str:
    """The submission file of one subjob alone, from that of its array."""
    return re.sub(r"^#PBS -J .*\n", "", text, flags=re.MULTILINE)


def unset_unsafe(environment: Mapping[str, str]) -> list[str]:
    """A command prefix that keeps from qsub's `-V` what is not one line with a plain name, such as
    exported shell functions: not every version brings it through whole."""
    plain = re.compile(r"[A-Za-z_]\w*", re.ASCII)
    unsafe = [k for k, v in environment.items() if "\n" in v or not plain.fullmatch(k)]
    return ["env", *(f"--unset={name}" for name in sorted(unsafe))] if unsafe else []


def _options(parameters: Parameters, folder: Path) -> list[str]:
    name = re.sub(r"[^\w.-]", "_", parameters.name, flags=re.ASCII)
    # PBS's own messages; the job itself writes to the files that submitit reads.
    messages = JobPaths.get_first_id_independent_folder(folder)
    options = [f"-N {name}", f"-S {shell.path(folder)}", "-V", "-r y", "-j n"]
    place = quoting.folder(f"{messages}/")
    options += [f"-o {place}", f"-e {place}"]
    if parameters.queue:
        options.append(f"-q {parameters.queue}")
    if parameters.account:
        options.append(f"{parameters.account_option} {parameters.account}")
    options.append(f"-l select={parameters.select}")
    if parameters.placement:
        options.append(f"-l place={parameters.placement}")
    return [*options, f"-l walltime={parameters.walltime}"]


def _stop_at(parameters: Parameters) -> list[str]:
    after_s = parameters.stop_after_s
    # Unset, lest the value of a job that submits this one be taken for its own.
    return [
        f"unset {STOP_AT}"
        if after_s is None
        else f"export {STOP_AT}=$(($(cut -d. -f1 /proc/uptime) + {after_s}))"
    ]


def _redirections(parameters: Parameters, folder: Path) -> list[str]:
    """PBS cannot name logs by job id, and keeps them from sight until the job has ended."""
    paths = JobPaths(folder)
    stderr = "2>&1" if parameters.stderr_to_stdout else f"2>> {_with_variables(paths.stderr)}"
    return [
        f"mkdir -p {_with_variables(paths.stdout.parent)}",
        f"exec >> {_with_variables(paths.stdout)} {stderr}",
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

"""The submission file: options of qsub in `#$` lines, then the command."""

from __future__ import annotations

from pathlib import Path

from submitit.core.utils import JobPaths

from submitit_gridengine.parameters import GridEngineParameters
from submitit_qsub import clock, quoting

_IN_PATH = {
    '"': "ends the quoted path",
    "'": "ends the quoted path",
    "#": "begins a comment",
    "$": "begins a variable such as $HOME",
    ":": "ends the name of a host",
    ",": "ends a path of a list",
}
"""Seen with 8.1.9: logs went elsewhere, or the job into an error state."""


def script(parameters: GridEngineParameters, command: str, folder: Path, tasks: int | None) -> str:
    """The text of the submission file of a job (`tasks` is None) or of an array of `tasks`."""
    options = [*_options(parameters), *_logs(parameters, folder, array=tasks is not None)]
    if tasks is not None:
        options.append(f"-t 1-{tasks}")
        if parameters.array_parallelism:
            options.append(f"-tc {min(tasks, int(parameters.array_parallelism))}")
    if depends_on_job(folder):
        options.append("-h")
    options.extend(parameters.extra)
    return "\n".join(
        [
            "#!/bin/bash",
            *(f"#$ {option}" for option in options),
            "",
            *clock.lines(parameters.stop_after_s),
            *parameters.setup,
            "export SUBMITIT_EXECUTOR=gridengine",
            # The signals that Grid Engine sends must reach Python.
            f"exec {command}",
            "",
        ]
    )


def depends_on_job(folder: Path) -> bool:
    """Whether the folder can be made only once the job has an id (`%j` in its path)."""
    return JobPaths.get_first_id_independent_folder(folder) != folder


def _options(parameters: GridEngineParameters) -> list[str]:
    options = [
        "-S /bin/bash",
        f"-N {quoting.job_name(parameters.name)}",
        "-cwd",
        "-V",
        # Started again after its host failed, and SIGUSR2 some seconds before a SIGKILL.
        "-r y",
        "-notify",
    ]
    if parameters.queue:
        options.append(f"-q {parameters.queue}")
    if parameters.parallel_environment and not parameters.node_resource and parameters.slots > 1:
        options.append(f"-pe {parameters.parallel_environment} {parameters.slots}")
    return options + [f"-l {request}" for request in parameters.requests()]


def _logs(parameters: GridEngineParameters, folder: Path, *, array: bool) -> list[str]:
    paths = JobPaths(folder)
    out = f'-o "{_with_variables(paths.stdout, array=array)}"'
    if parameters.stderr_to_stdout:
        return [out, "-j y"]
    return [out, f'-e "{_with_variables(paths.stderr, array=array)}"']


def _with_variables(path: Path, *, array: bool) -> str:
    """submitit's tags as Grid Engine's variables."""
    text = str(path)
    for character in quoting.line(text, "the folder"):
        if character in _IN_PATH:
            why = f"{_IN_PATH[character]} in -o and -e"
            raise quoting.refused(text, "the folder", character, why)
    if "%a" in text and not array:
        raise ValueError(f"{text!r} contains %a, but this job is not an array.")
    text = text.replace("%j", "$JOB_ID_$TASK_ID" if array else "$JOB_ID")
    return text.replace("%A", "$JOB_ID").replace("%a", "$TASK_ID").replace("%t", "0")

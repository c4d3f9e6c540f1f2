"""The command lines and submission files, to the letter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from submitit_gridengine import GridEngineExecutor

FILE = Path("/shared/jobs/job.sh")


def executor(folder: str | Path = "/shared/jobs", **parameters: Any) -> GridEngineExecutor:
    made = GridEngineExecutor(folder)
    made.update_parameters(python="python3", **parameters)
    return made


def text(folder: str = "/shared/jobs", tasks: int | None = None, **parameters: Any) -> str:
    made = executor(folder, **parameters)
    made._array_size = tasks
    return made._make_submission_file_text(made._submitit_command_str, "0")


def options(**parameters: Any) -> list[str]:
    lines = text(**parameters).splitlines()
    return [line.removeprefix("#$ ") for line in lines if line.startswith("#$ ")]


def test_a_plain_job() -> None:
    assert (
        text()
        == """\
#!/bin/bash
#$ -S /bin/bash
#$ -N submitit
#$ -cwd
#$ -V
#$ -r y
#$ -notify
#$ -l h_rt=300
#$ -o "/shared/jobs/$JOB_ID_0_log.out"
#$ -e "/shared/jobs/$JOB_ID_0_log.err"

export SUBMITIT_STOP_AT=$(($(cut -d. -f1 /proc/uptime) + 210))
export SUBMITIT_EXECUTOR=gridengine
exec python3 -u -m submitit.core._submit /shared/jobs
"""
    )
    assert executor()._make_submission_command(FILE)[-3:] == ["qsub", "-terse", str(FILE)]


def test_a_job_with_everything() -> None:
    asked: dict[str, Any] = {
        "name": "4 ranks",
        "timeout_min": 60,
        "mem_gb": 16,
        "nodes": 2,
        "processes_per_node": 4,
        "cpus_per_task": 2,
        "gpus_per_node": 4,
        "stderr_to_stdout": True,
        "queue": "gpu.q",
        "account": "physics",
        "parallel_environment": "mpi",
        "memory_resource": "h_vmem",
        "gpu_resource": "gpu",
        "resources": ["exclusive=true"],
        "stop_seconds": 300,
        "setup": ["module load mpi"],
        "extra": ["-p -10"],
    }
    assert options(**asked)[1:] == [
        "-N j4_ranks",
        "-cwd",
        "-V",
        "-r y",
        "-notify",
        "-q gpu.q",
        "-pe mpi 16",
        "-l h_rt=3600",
        "-l h_vmem=2048M",
        "-l gpu=4",
        "-l exclusive=true",
        '-o "/shared/jobs/$JOB_ID_0_log.out"',
        "-j y",
        "-p -10",
    ]
    *_, clock, setup, name, _ = text(**asked).splitlines()
    assert clock.endswith(" + 3300))")
    assert (setup, name) == ("module load mpi", "export SUBMITIT_EXECUTOR=gridengine")
    command = executor(**asked)._make_submission_command(FILE)
    assert command[-5:] == ["qsub", "-terse", "-P", "physics", str(FILE)]


def test_two_full_nodes_as_on_tsubame_4() -> None:
    asked: dict[str, Any] = {
        "account_option": "-g",
        "account": "tga-group",
        "node_resource": "node_f",
        "nodes": 2,
        "processes_per_node": 4,
        "gpus_per_node": 4,
        "mem_gb": 768,
        "timeout_min": 60,
    }
    command = executor(**asked)._make_submission_command(FILE)
    assert command[-5:] == ["qsub", "-terse", "-g", "tga-group", str(FILE)]
    assert [line for line in options(**asked) if line.startswith(("-l", "-pe", "-q"))] == [
        "-l h_rt=3600",
        "-l node_f=2",
    ]


def test_an_array() -> None:
    asked = options(tasks=20, array_parallelism=5)
    assert asked[-4:] == [
        '-o "/shared/jobs/$JOB_ID_$TASK_ID_0_log.out"',
        '-e "/shared/jobs/$JOB_ID_$TASK_ID_0_log.err"',
        "-t 1-20",
        "-tc 5",
    ]
    assert "-tc 20" in options(tasks=20, array_parallelism=300)
    assert not [line for line in options(tasks=20) if line.startswith("-tc")]


def test_a_job_waits_for_a_folder_named_after_it() -> None:
    assert '-o "/shared/$JOB_ID/$JOB_ID_0_log.out"' in options(folder="/shared/%j")
    assert "-h" in options(folder="/shared/%j")
    assert '-o "/shared/$JOB_ID/$TASK_ID/$JOB_ID_$TASK_ID_0_log.out"' in options(
        folder="/shared/%A/%a", tasks=2
    )
    assert "-h" not in options()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"cpus_per_task": 4}, "gridengine_parallel_environment"),
        ({"gpus_per_node": 4}, "gridengine_gpu_resource"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        executor(**asked)


def test_the_task_of_an_array_is_refused_in_the_folder_of_a_job() -> None:
    with pytest.raises(ValueError, match="not an array"):
        text(folder="/shared/%a")


def test_an_array_is_one_submission_and_its_tasks_count_from_1(
    tmp_path: Path, answer: Callable[[str, str], None], calls: Callable[[], list[str]]
) -> None:
    answer("qsub", "77.1-3:1")
    jobs = executor(tmp_path / "jobs").map_array(abs, [-1, -2, -3])
    assert [job.job_id for job in jobs] == ["77_1", "77_2", "77_3"]
    assert [job.submission().args for job in jobs] == [(-1,), (-2,), (-3,)]
    assert len(calls()) == 1
    assert jobs[0].watcher._registered == {"77_1", "77_2", "77_3"}
    assert "#$ -t 1-3\n" in jobs[0].paths.submission_file.read_text()


def test_a_held_job_is_released_when_its_folder_is_there(
    tmp_path: Path, answer: Callable[[str, str], None], calls: Callable[[], list[str]]
) -> None:
    answer("qsub", "78")
    answer("qrls", "")
    job = executor(tmp_path / "%j").submit(print)
    assert job.paths.submitted_pickle.parent == tmp_path / "78"
    assert calls()[1] == "qrls 78"


def test_any_number_of_jobs_is_cancelled_with_one_qdel(
    tmp_path: Path, answer: Callable[[str, str], None], calls: Callable[[], list[str]]
) -> None:
    answer("qsub", "77.1-3:1")
    answer("qdel", "")
    jobs = executor(tmp_path / "jobs").map_array(abs, [-1, -2, -3])
    calls()
    type(jobs[0]).cancel_jobs(jobs)  # type: ignore[attr-defined]
    jobs[1].cancel()
    assert calls() == ["qdel 77.1 77.2 77.3", "qdel 77.2"]

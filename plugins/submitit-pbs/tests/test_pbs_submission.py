"""The command lines and submission files, to the letter."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from submitit.core.utils import FailedSubmissionError

from submitit_pbs import PbsExecutor, shell
from submitit_qsub.clock import STOP_AT

FILE = Path("/shared/jobs/job.sh")


def text(folder: str = "/shared/jobs", subjobs: int | None = None, **parameters: Any) -> str:
    executor = PbsExecutor(folder)
    executor.update_parameters(python="python3", **parameters)
    executor._array_size = subjobs
    return executor._make_submission_file_text(executor._submitit_command_str, "0")


def options(**parameters: Any) -> list[str]:
    lines = text(**parameters).splitlines()
    return [line.removeprefix("#PBS ") for line in lines if line.startswith("#PBS ")]


def test_a_plain_job() -> None:
    expected = r"""#!/bin/bash
#PBS -N submitit
#PBS -S /shared/jobs/pbs-shell
#PBS -V
#PBS -r y
#PBS -j n
#PBS -o /shared/jobs/
#PBS -e /shared/jobs/
#PBS -l select=1:ncpus=1:mpiprocs=1
#PBS -l walltime=00:05:00

export SUBMITIT_STOP_AT=$(($(cut -d. -f1 /proc/uptime) + 210))
job=${PBS_JOBID%%.*}
job=${job/\[/_}
job=${job/\]/}
export SUBMITIT_PBS_JOB_ID=${SUBMITIT_PBS_FOLLOWS:-$job}
unset SUBMITIT_PBS_FOLLOWS job
cd "$PBS_O_WORKDIR"
mkdir -p "/shared/jobs"
[ -e "/shared/jobs/${SUBMITIT_PBS_JOB_ID}_0_log.out" ]; export SUBMITIT_PBS_RESTARTED=$((1 - $?))
exec >> "/shared/jobs/${SUBMITIT_PBS_JOB_ID}_0_log.out" 2>> "/shared/jobs/${SUBMITIT_PBS_JOB_ID}_0_log.err"
export SUBMITIT_EXECUTOR=pbs
exec python3 -u -m submitit.core._submit /shared/jobs
"""
    assert text() == expected
    assert PbsExecutor("/shared/jobs")._make_submission_command(FILE)[-2:] == ["qsub", str(FILE)]


def test_a_job_is_told_to_stop_by_a_clock_that_nobody_sets() -> None:
    """That of the host since its start, which the job's process reads too."""
    (line,) = (each for each in text().splitlines() if each.startswith(f"export {STOP_AT}="))
    before_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    command = ["bash", "-c", f"{line}; echo ${STOP_AT}"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert before_s - 1 <= int(said) - 210 <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_two_full_nodes_as_on_abci_3() -> None:
    assert options(
        queue="rt_HF", account="gaa50000", nodes=2, chunk="", processes_per_node=8, timeout_min=90
    ) == [
        "-N submitit",
        "-S /shared/jobs/pbs-shell",
        "-V",
        "-r y",
        "-j n",
        "-o /shared/jobs/",
        "-e /shared/jobs/",
        "-q rt_HF",
        "-P gaa50000",
        "-l select=2",
        "-l walltime=01:30:00",
    ]


def test_a_job_with_everything() -> None:
    asked: dict[str, Any] = {
        "name": "4 ranks",
        "timeout_min": 1500,
        "mem_gb": 16,
        "nodes": 2,
        "processes_per_node": 4,
        "cpus_per_task": 2,
        "gpus_per_node": 4,
        "stderr_to_stdout": True,
        "queue": "gpu",
        "account_option": "-A",
        "account": "physics",
        "place": "scatter:excl",
        "stop_seconds": 0,
        "setup": ["module load mpi"],
        "extra": ["-p -10"],
    }
    assert options(**asked)[-7:] == [
        "-e /shared/jobs/",
        "-q gpu",
        "-A physics",
        "-l select=2:ncpus=8:mpiprocs=4:ngpus=4:mem=16384mb",
        "-l place=scatter:excl",
        "-l walltime=25:00:00",
        "-p -10",
    ]
    lines = text(**asked)
    assert '_0_log.out" 2>&1\nmodule load mpi\nexport SUBMITIT_EXECUTOR=pbs\n' in lines
    assert "\nunset SUBMITIT_STOP_AT\n" in lines


def test_a_chunk_may_be_given_in_full() -> None:
    assert "-l select=3:ncpus=36:model=xyz" in options(nodes=3, chunk="ncpus=36:model=xyz")


@pytest.mark.parametrize(
    ("parameters", "place"),
    [
        ({}, []),
        ({"nodes": 2}, ["-l place=scatter"]),
        ({"nodes": 2, "chunk": "ncpus=4"}, ["-l place=scatter"]),
        ({"nodes": 2, "chunk": ""}, []),
        ({"nodes": 2, "place": "pack"}, ["-l place=pack"]),
    ],
)
def test_several_nodes_are_not_one_unless_the_queue_says_what_a_node_is(
    parameters: dict[str, Any], place: list[str]
) -> None:
    assert [line for line in options(**parameters) if "place" in line] == place


def test_a_folder_with_a_space_is_quoted_and_has_its_shell_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    asked = options(folder="/my jobs/here")
    assert '-o "/my jobs/here/"' in asked
    assert '-e "/my jobs/here/"' in asked
    assert "-S /home/ada/.submitit/pbs-shell" in asked
    monkeypatch.setenv("HOME", "/home/a b")
    with pytest.raises(
        FailedSubmissionError,
        match="not accept a path like '/my jobs/here', nor HOME, which is '/home/a b'",
    ):
        options(folder="/my jobs/here")


def test_without_a_home_a_folder_with_a_space_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    assert "-S /shared/jobs/pbs-shell" in options()
    with pytest.raises(FailedSubmissionError, match="or set HOME to one"):
        options(folder="/my jobs/here")


def test_a_home_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/proc")
    with pytest.raises(FailedSubmissionError, match=r"/proc/\.submitit/pbs-shell.*set HOME"):
        shell.write(Path("/my jobs/here"))


@pytest.mark.parametrize(
    ("extra", "lines"),
    [
        (["-v A=1", "-v B=2"], ["-v A=1,B=2"]),
        (["-v A=1", "-p 3 -vB='x y',C -W umask=077"], ["-p 3 -W umask=077", "-v A=1,B='x y',C"]),
        (["-M a@b", "-m a", "-M c@d", "-m e"], ["-M a@b,c@d", "-m ae"]),
        (["-W depend=afterok:1", "-W umask=077"], ["-W depend=afterok:1", "-W umask=077"]),
        (["-v A='1", "-p 3"], ["-v A='1", "-p 3"]),
        (["-l cput=60", "-l file=1gb"], ["-l cput=60", "-l file=1gb"]),
    ],
)
def test_an_option_that_pbs_takes_once_is_one_line(extra: list[str], lines: list[str]) -> None:
    """Of several lines with `-v`, `-M` or `-m` it keeps the last; of others it keeps all."""
    asked = options(extra=extra)
    assert asked[asked.index("-l walltime=00:05:00") + 1 :] == lines


@pytest.mark.parametrize(
    ("extra", "instead"),
    [
        ("-l walltime=01:00:00", r"timeout_min \(in Snakemake the resource runtime\)"),
        ("-p 1 -lselect=2:ncpus=4", "nodes and chunk"),
        ("-l cput=60,walltime=60", "timeout_min"),
    ],
)
def test_a_request_that_pbs_would_not_hear_is_refused(extra: str, instead: str) -> None:
    with pytest.raises(ValueError, match=f"PBS uses the first.* Use {instead}"):
        options(extra=[extra])


def test_a_place_may_be_asked_for_where_the_executor_asks_for_none() -> None:
    assert options(extra=["-l place=excl"])[-1] == "-l place=excl"
    with pytest.raises(ValueError, match="Use place"):
        options(nodes=2, extra=["-l place=excl"])


def test_an_array() -> None:
    assert options(subjobs=100, array_parallelism=10)[-1] == "-J 0-99%10"
    assert options(subjobs=2)[-1] == "-J 0-1"


def test_logs_may_lie_in_a_folder_of_each_job() -> None:
    assert "-o /shared/" in options(folder="/shared/%A/%a")
    assert 'mkdir -p "/shared/${SUBMITIT_PBS_JOB_ID%%_*}/${SUBMITIT_PBS_JOB_ID##*_}"' in text(
        folder="/shared/%A/%a"
    )


def test_an_array_is_one_submission_and_its_jobs_are_cancelled_with_one_qdel(
    tmp_path: Path, programs: Callable[..., Path]
) -> None:
    programs("qsub", "77[].pbs1")
    programs("qdel")
    jobs = PbsExecutor(tmp_path / "jobs").map_array(abs, [-1, -2, -3])
    assert [job.job_id for job in jobs] == ["77_0", "77_1", "77_2"]
    assert [job.submission().args for job in jobs] == [(-1,), (-2,), (-3,)]
    assert jobs[0].watcher._registered == {"77_0", "77_1", "77_2"}
    assert "#PBS -J 0-2\n" in jobs[0].paths.submission_file.read_text()

    type(jobs[0]).cancel_jobs(jobs)  # type: ignore[attr-defined]
    assert jobs[0].watcher.cancelled == {"77_0", "77_1", "77_2"}
    jobs[1].cancel()
    qsub, *qdels = (tmp_path / "calls").read_text().splitlines()
    assert qsub.startswith("qsub ")
    assert qdels == ["qdel 77[0] 77[1] 77[2]", "qdel 77[1]"]

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fakes import SnakemakeJob
from snakemake_interface_common.exceptions import WorkflowError

from snakemake_executor_plugin_submitit import cluster, clusters, dryrun, slurm, slurm_states
from snakemake_executor_plugin_submitit.resources import Allocation
from snakemake_executor_plugin_submitit.settings import ExecutorSettings


def script(settings: ExecutorSettings, folder: Path, **resources: object) -> str:
    """The text that a dry run prints for one job."""
    job = SnakemakeJob(resources=resources)
    return "\n".join(dryrun.describe([job], clusters.cluster(settings), folder, settings))  # type: ignore[list-item]


def directives(text: str) -> set[str]:
    return set(re.findall(r"#SBATCH --(\S+)", text))


def test_a_job_of_several_nodes_is_one_batch_script_without_srun(tmp_path: Path):
    settings = ExecutorSettings(cluster="slurm", tasks_per_node=4, account="gaa", queue="gpu")
    text = script(settings, tmp_path, tasks=8, gpus=8, mem_mb=2000, runtime=30, cpus_per_task=2)
    assert directives(text) >= {
        "nodes=2",
        "ntasks-per-node=4",
        "cpus-per-task=2",
        "gpus-per-node=4",
        "mem=2000MB",
        "time=30",
        "account=gaa",
        "partition=gpu",
        "requeue",
        "signal=B:USR2@120",
    }
    assert "srun" not in text
    assert re.search(r"^    exec \S+python\S* -u -m submitit.core._submit", text, re.MULTILINE)


def test_an_option_that_submitit_does_not_know_is_one_of_sbatch(tmp_path: Path):
    settings = ExecutorSettings(
        cluster="slurm", options=["reservation=r1", "qos=high", "hold=true"]
    )
    assert directives(script(settings, tmp_path)) >= {"reservation=r1", "qos=high", "hold"}


@pytest.mark.parametrize(
    ("option", "kept"),
    [
        ("exclusive=false", {"requeue"}),
        ("requeue=false", {"no-requeue"}),
        ("no_requeue=true", {"no-requeue"}),
        ("no_requeue=false", {"requeue"}),
        ("requeue=true", {"requeue"}),
        ("qos=1e3", {"requeue", "qos=1e3"}),
        ("qos=", {"requeue"}),
        ("wckey=", {"requeue"}),
        ("wckey=w", {"requeue", "wckey=w"}),
    ],
)
def test_an_option_is_one_line_or_none(tmp_path: Path, option: str, kept: set[str]):
    made = directives(script(ExecutorSettings(cluster="slurm", options=[option]), tmp_path))
    named = re.compile("exclusive|requeue|no-requeue|qos|wckey")
    assert {line for line in made if named.match(line)} == kept


@pytest.mark.parametrize(
    ("cluster", "line"), [("slurm", "array=0-2%3"), ("pbs", "J 0-2"), ("gridengine", "t 1-3")]
)
def test_a_dry_run_shows_the_array(tmp_path: Path, cluster: str, line: str):
    settings = ExecutorSettings(cluster=cluster)
    jobs = [SnakemakeJob(jobid=number) for number in range(3)]
    describe = dryrun.describe
    text, _ = describe(jobs, clusters.cluster(settings), tmp_path, settings)  # type: ignore[arg-type]
    assert re.search(rf"^ +#(SBATCH --|PBS -|\$ -){line}$", text, re.MULTILINE)
    text, _ = describe(jobs, clusters.cluster(settings), tmp_path, settings, at_once=1)  # type: ignore[arg-type]
    assert not re.search(r"--array|-J |-t 1", text)


def test_a_dry_run_ends_with_what_the_jobs_may_cost(tmp_path: Path):
    settings = ExecutorSettings(cluster="pbs", tasks_per_node=4)
    jobs = [SnakemakeJob(resources={"tasks": 8, "runtime": 90}) for _ in range(3)]
    jobs.append(SnakemakeJob(name="plot", resources={"runtime": 15}))
    *_, cost = dryrun.describe(jobs, clusters.cluster(settings), tmp_path, settings)  # type: ignore[arg-type]
    assert cost.startswith("# In all 4 jobs, at most 9.2 node-hours: ")
    assert not list(dryrun.describe([], clusters.cluster(settings), tmp_path, settings))


@pytest.mark.parametrize(
    ("cluster", "called"),
    [
        ("slurm", "scancel 12_0 12_1"),
        ("pbs", "qdel 12[0] 12[1]"),
        ("gridengine", "qdel 12.0 12.1"),
    ],
)
def test_jobs_are_cancelled_by_one_command_and_what_it_says_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: str, called: str
):
    program = tmp_path / called.split(maxsplit=1)[0]
    program.write_text(f'#!/bin/sh\necho "$(basename $0) $*" >> {tmp_path}/calls\nexit $STATUS\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    made = clusters.cluster(ExecutorSettings(cluster=cluster))
    jobs = [made.job(tmp_path, job_id) for job_id in ("12_0", "12_1")]
    monkeypatch.setenv("STATUS", "0")
    assert made.cancel(jobs) == []
    assert made.cancel([]) == []
    monkeypatch.setenv("STATUS", "7")
    (said,) = made.cancel(jobs)
    assert "exit status 7" in said
    assert (tmp_path / "calls").read_text().splitlines() == [called, called]


@pytest.mark.parametrize("cluster", ["slurm", "pbs", "gridengine"])
def test_a_forgotten_job_is_asked_for_no_more(tmp_path: Path, cluster: str):
    made = clusters.cluster(ExecutorSettings(cluster=cluster))
    job = made.job(tmp_path, "12")
    assert "12" in job.watcher._registered
    made.forget("12")
    assert "12" not in job.watcher._registered


def test_an_option_wins_over_what_the_resources_say(tmp_path: Path):
    settings = ExecutorSettings(cluster="slurm", options=["mem=3GB", "signal=CONT@1"])
    made = directives(script(settings, tmp_path, mem_mb=100))
    assert {"mem=3GB", "signal=CONT@1"} <= made
    assert "mem=100MB" not in made


@pytest.mark.parametrize(
    ("option", "variable", "line"),
    [
        ("", "", ""),
        ("", "ALL", ""),
        ("export=ALL,A=1", "", "ALL,A=1"),
        ("export=NONE", "", "TOKEN,KEY"),
        ("export=PATH", "NONE", "PATH,TOKEN,KEY"),
        ("", "NONE", "TOKEN,KEY"),
    ],
)
def test_slurm_is_told_the_names_of_declared_variables_where_it_would_leave_them_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, variable: str, line: str
):
    monkeypatch.setenv("SBATCH_EXPORT", variable or "ALL")
    settings = ExecutorSettings(cluster="slurm", options=[option] if option else [])
    made = clusters.cluster(settings)
    made.declared = {"TOKEN": "s3cr3t", "KEY": "k3y"}
    executor: Any = made.executor(tmp_path, Allocation.of(SnakemakeJob(), settings))  # type: ignore[arg-type]
    text = executor._make_submission_file_text(executor._submitit_command_str, "0")
    assert re.findall(r"^#SBATCH --export=(.*)$", text, re.MULTILINE) == ([line] if line else [])
    assert "s3cr3t" not in text


def test_an_array_is_no_larger_than_the_cluster_and_the_user_allow(monkeypatch: pytest.MonkeyPatch):
    config = "MaxJobCount             = 10000\nMaxArraySize            = 10\nMaxStepCount = 40000\n"
    monkeypatch.setattr(slurm_states, "output", lambda command: config)
    assert clusters.cluster(ExecutorSettings(cluster="slurm")).largest_array() == 10
    assert clusters.cluster(ExecutorSettings(cluster="slurm", array_size=3)).largest_array() == 3
    monkeypatch.setattr(slurm_states, "output", lambda command: "")
    assert clusters.cluster(ExecutorSettings(cluster="slurm")).largest_array() == 1000


def test_an_array_of_slurm_keeps_the_script_of_a_single_job(tmp_path: Path):
    settings = ExecutorSettings(cluster="slurm")
    allocation = Allocation.of(SnakemakeJob(), settings)  # type: ignore[arg-type]
    executor = clusters.cluster(settings).executor(tmp_path, allocation)
    executor.parameters["map_count"] = 7
    text = executor._make_submission_file_text(executor._submitit_command_str, "0")
    assert "#SBATCH --array=0-6%7" in text
    assert "\nexec " in text


def test_an_unknown_option_is_refused_with_those_that_there_are(tmp_path: Path):
    with pytest.raises(WorkflowError, match=r"gridengine has no option qos\. It has account"):
        script(ExecutorSettings(cluster="gridengine", options=["qos=high"]), tmp_path)


def test_a_cluster_whose_distribution_is_missing_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cluster.plugins, "get_executors", dict)
    with pytest.raises(WorkflowError, match="install submitit-pbs"):
        script(ExecutorSettings(cluster="pbs"), tmp_path)


def test_a_missing_scheduler_program_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(WorkflowError, match="--submitit-cluster slurm needs sbatch, sacct"):
        clusters.cluster(ExecutorSettings(cluster="slurm")).check_programs()


@pytest.mark.parametrize("state", ["PENDING", "REQUEUED", "SUSPENDED", "COMPLETING"])
def test_a_job_that_may_go_on_has_not_ended(state: str):
    watcher = slurm_states.SlurmWatcher()
    watcher._info_dict = watcher.read_info(f"JobID|State\n7|{state}\n")
    assert not watcher.is_done("7", mode="cache")


def test_states_of_pending_and_ended_elements_of_an_array_are_told_apart():
    watcher = slurm_states.SlurmWatcher()
    watcher._info_dict = watcher.read_info("JobID|State\n7_0|CANCELLED by 5\n7_[1-3]|PENDING\n")
    assert watcher.get_state("7_0", mode="cache") == "CANCELLED"
    assert [watcher.is_done(f"7_{i}", mode="cache") for i in range(4)] == [True] + 3 * [False]


def test_one_query_names_each_array_once():
    assert "--jobs=7,9" in slurm_states.records_command({"7_0", "7_1", "9"})


def test_a_job_that_was_killed_for_its_memory_says_so(tmp_path: Path):
    log = tmp_path / "log"
    log.write_text("training\nslurmstepd-n1: error: exceeded memory limit (9 > 5)\n")
    keys = ("State", "ExitCode", "Elapsed", "Timelimit", "NodeList")
    info = dict(zip(keys, ("FAILED", "0:9", "00:05", "01:00", "n1"), strict=True))
    assert slurm_states.was_killed(info)
    words = slurm_states.ending_words(info, slurm_states.daemon_words(log))
    assert words.endswith("on n1); slurmstepd-n1: error: exceeded memory limit (9 > 5)")


def test_a_job_that_ended_by_itself_was_not_killed():
    assert not slurm_states.was_killed({"State": "FAILED", "ExitCode": "1:0"})


class Commands:
    """squeue and sacct, by the text that each prints, or its error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **texts: str | Exception) -> None:
        self.texts = texts
        self.asked: list[str] = []
        self.watcher = slurm_states.SlurmWatcher()
        monkeypatch.setattr(slurm.SlurmJob, "watcher", self.watcher)
        monkeypatch.setattr(slurm_states, "output", self)

    def __call__(self, command: list[str]) -> str:
        name = next(word for word in command if word in self.texts)
        self.asked.append(name)
        text = self.texts[name]
        if isinstance(text, Exception):
            raise text
        return text

    def state(self, folder: Path, job_id: str = "4711") -> cluster.JobState:
        made = clusters.cluster(ExecutorSettings(cluster="slurm"))
        job = made.job(folder, job_id)
        made.query()
        return made.state(job)


RECORD = "JobID|State|ExitCode|Elapsed|Timelimit|NodeList\n4711|NODE_FAIL|0:0|00:21|02:00|node3\n"
AWAY = ConnectionError("slurm_load_jobs error: Unable to contact slurm controller")
OFF = ConnectionError("sacct: Slurm accounting storage is disabled")


def test_a_job_that_is_being_requeued_has_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    commands = Commands(monkeypatch, squeue="4711|PENDING|BeginTime\n", sacct=RECORD)
    assert commands.state(tmp_path).words == "PENDING (BeginTime)"
    assert commands.asked == ["squeue"]


@pytest.mark.parametrize(
    "word",
    [
        *("CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING", "STAGE_OUT", "COMPLETING"),
        *("REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"),
    ],
)  # fmt: skip
def test_a_job_that_runs_or_waits_has_not_ended_in_whatever_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
):
    """All that squeue lists of jobs that may still end well, whatever was recorded of an earlier run."""
    commands = Commands(monkeypatch, squeue=f"4711|{word}|0|None\n", sacct=RECORD)
    state = commands.state(tmp_path)
    assert (state.known, state.active, state.ended, state.killed) == (True, True, False, False)
    assert commands.asked == ["squeue"]


@pytest.mark.parametrize("queue", [AWAY, "Notice of the site\n", "4711|PENDING|None\n4712|RUN"])
def test_nothing_is_decided_while_squeue_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queue: str | Exception
):
    commands = Commands(monkeypatch, squeue=queue, sacct=RECORD)
    with pytest.raises(ConnectionError):
        commands.state(tmp_path)


def test_squeue_and_sacct_together_tell_of_an_end_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    commands = Commands(monkeypatch, squeue="4711|NODE_FAIL|NodeDown\n", sacct=RECORD)
    state = commands.state(tmp_path)
    assert (state.ended, state.killed) == (True, True)
    assert state.words == "NODE_FAIL (exit code 0:0, after 00:21 of 02:00, on node3)"
    commands.texts["squeue"] = ""
    state = commands.state(tmp_path)
    assert (state.ended, state.killed) == (True, False)


@pytest.mark.parametrize(
    "silent", [OFF, ConnectionError("sacct did not answer in 60 s"), "", RECORD[:-20]]
)
def test_without_accounting_squeue_tells_how_a_job_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: str | Exception
):
    commands = Commands(monkeypatch, squeue="4711|FAILED|NonZeroExitCode\n", sacct=silent)
    assert commands.state(tmp_path).words == "FAILED (squeue: NonZeroExitCode)"
    commands.texts["squeue"] = ""
    assert not commands.state(tmp_path).known


def test_accounting_that_is_off_is_asked_once_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    commands = Commands(monkeypatch, squeue="", sacct=OFF)
    for _ in range(3):
        commands.state(tmp_path)
    assert commands.asked == ["squeue", "sacct", "squeue", "squeue"]
    assert (
        "accounting storage is disabled" in clusters.cluster(ExecutorSettings(cluster="slurm")).note
    )


@pytest.mark.parametrize(
    ("reason", "command"),
    [
        ("JobHeldUser", "scontrol release 4711"),
        ("launch failed requeued held", "scontrol release 4711"),
        ("launch_failed_requeued_held", "scontrol release 4711"),
        ("job requeued in held state", "scontrol release 4711"),
        ("JobHeldAdmin", "scontrol release 4711"),
        ("JobHoldMaxRequeue", "scontrol release 4711"),
        ("ReservationDeleted", "scontrol release 4711"),
        ("PartitionConfig", "scancel 4711"),
        ("BadConstraints", "scancel 4711"),
        ("DependencyNeverSatisfied", "scancel 4711"),
        ("QOSMaxGRESPerJob", "scancel 4711"),
        ("QOSMaxMemoryPerNode", "scancel 4711"),
        ("QOSMinCpuNotSatisfied", "scancel 4711"),
        ("AssocGrpGRESMinutes", "scancel 4711"),
        ("AssocGrpWallLimit", "scancel 4711"),
        ("PartitionDown", "sinfo -R"),
        ("PartitionInactive", "sinfo -R"),
        ("ReqNodeNotAvail, UnavailableNodes:node3", "sinfo -R"),
        ("ReqNodeNotAvail, May be reserved for other job", ""),
        ("ReqNodeNotAvail, Reserved for maintenance", ""),
        ("Reservation", ""),
        ("Dependency", ""),
        ("BeginTime", ""),
        ("Licenses", ""),
        ("QOSUsageThreshold", ""),
        ("QOSMaxGRESPerUser", ""),
        ("MaxMemoryPerAccount", ""),
        ("AssocGrpGRESRunMinutes", ""),
        ("JobArrayTaskLimit", ""),
        ("PartitionNodeLimit", "scancel 4711"),
        ("PartitionTimeLimit", "scancel 4711"),
        ("QOSMaxWallDurationPerJobLimit", "scancel 4711"),
        ("AssocGrpCPUMinutesLimit", "scancel 4711"),
        ("AssocGrpCPURunMinutesLimit", ""),
        ("QOSMaxJobsPerUserLimit", ""),
        ("Resources", ""),
        ("Priority", ""),
    ],
)
def test_a_reason_that_waits_for_a_person_comes_with_the_command(reason: str, command: str):
    remedy = slurm_states.read_queue(f"4711|PENDING|4294901756|{reason}\n")["4711"]["Remedy"]
    assert f"`{command}`" in remedy if command else not remedy


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("REQUEUE_HOLD|0|None", "scontrol release 4711"),
        ("SPECIAL_EXIT|0|None", "scontrol release 4711"),
        ("RESV_DEL_HOLD|0|None", "scontrol release 4711"),
        ("SUSPENDED|0|None", "scontrol resume 4711"),
        ("SUSPENDED|4294901756|None", ""),
        ("STOPPED|4294901756|None", "scancel --signal=CONT 4711"),
        ("RUNNING|4294901756|None", ""),
        ("COMPLETING|4294901756|NonZeroExitCode", ""),
        ("CANCELLED|0|JobHeldUser", ""),
    ],
)
def test_a_state_that_waits_for_a_person_comes_with_the_command(line: str, command: str):
    """As squeue of Slurm 22.05 prints them."""
    remedy = slurm_states.read_queue(f"4711|{line}\n")["4711"]["Remedy"]
    assert f"`{command}`" in remedy if command else not remedy


def test_slurms_accounting_is_not_asked_while_no_job_of_an_array_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The array itself, which squeue never lists, is no job."""
    sbatch = tmp_path / "sbatch"
    sbatch.write_text("#!/bin/sh\necho Submitted batch job 4711\n")
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    queue = "4711_0|RUNNING|2|None\n4711_1|PENDING|1|Priority\n"
    commands = Commands(monkeypatch, squeue=queue, sacct=RECORD)
    settings = ExecutorSettings(cluster="slurm")
    made = clusters.cluster(settings)
    executor = made.executor(tmp_path / "run", Allocation.of(SnakemakeJob(), settings))  # type: ignore[arg-type]
    jobs = executor.submit_array([abs, abs])
    for _ in range(12):
        made.query()
    assert [job.job_id for job in jobs] == ["4711_0", "4711_1"]
    assert commands.asked == ["squeue"] * 12


@pytest.mark.parametrize(
    "outcome", [subprocess.TimeoutExpired("x", 1), OSError("no such program"), (1, "down")]
)
def test_a_command_of_slurm_that_hangs_or_fails_is_no_answer(
    monkeypatch: pytest.MonkeyPatch, outcome: Exception | tuple[int, str]
):
    def run(command: list[str], *, timeout: float, **_: object) -> subprocess.CompletedProcess[str]:
        assert timeout <= 60
        if isinstance(outcome, Exception):
            raise outcome
        return subprocess.CompletedProcess(command, outcome[0], "", outcome[1])

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(ConnectionError, match="sacct"):
        slurm_states.output(slurm_states.records_command({"1"}))


@pytest.mark.parametrize("cluster", ["pbs", "gridengine"])
def test_a_number_that_is_none_is_named(tmp_path: Path, cluster: str):
    with pytest.raises(WorkflowError, match="train: nodes is 'two': it must be a number"):
        script(ExecutorSettings(cluster=cluster, options=["nodes=two"]), tmp_path)

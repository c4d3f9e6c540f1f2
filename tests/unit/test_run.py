"""One execution of a cell: what is left in the run folder, however it ends."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from in_process import die_after, in_job, interrupt, last_digest, stop, stop_after, versions
from numpy_framework import ALONE, Unasked
from stored_versions import Busy

from ckptbench.analysis.collect.run_folder import Run
from ckptbench.checkpointing import preflight
from ckptbench.checkpointing.copying import has_c_copy
from ckptbench.checkpointing.store import CheckpointStore
from ckptbench.checkpointing.version import Version
from ckptbench.common.errors import DataError, LaunchError, RunFolderError, RunStopped
from ckptbench.common.files import read_json, write_json
from ckptbench.launch import attempts, run
from ckptbench.launch.limits import stop_requests
from ckptbench.launch.manifest import check_replicas
from ckptbench.launch.run import Execution, run_cell
from ckptbench.launch.series import AttemptSeries
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.run.control.variables import STEADY_HEAP, TUNABLES
from ckptbench.run.events import Retained, Start
from ckptbench.run.layout import trace_path
from ckptbench.run.plan import Plan
from ckptbench.run.seal import verify_seal
from ckptbench.run.trace import whole_events
from ckptbench.training.rank import run_rank

MakePlan = Callable[..., Plan]


def test_a_run_that_ends_well_is_sealed_and_says_what_it_was(
    make_plan: MakePlan, execution: Execution
) -> None:
    plan = make_plan("e1")
    run_cell(plan, execution)
    assert {path.name for path in verify_seal(plan.run_folder)} == {
        "manifest.json",
        "trace-0.jsonl",
        "launcher.jsonl",
    }
    manifest = read_json(plan.run_folder / "manifest.json")
    assert (manifest["status"], manifest["attempts"], manifest["error"]) == ("complete", 1, None)
    assert manifest["cell_id"] == plan.cell.id
    assert manifest["parameters"] == 51
    assert manifest["state_bytes"]["model"] == manifest["state_bytes"]["optimizer"] == 4 * 51
    assert manifest["measured_on"] == manifest["device"] == "cpu"
    assert manifest["versions"]["numpy"]
    assert manifest["versions"]["ckptbench's copy"] == ("native" if has_c_copy() else "numpy")
    assert STEADY_HEAP in manifest["environment"][TUNABLES]
    assert TUNABLES in manifest["versions"]


def test_checkpoints_are_gone_when_their_sizes_are_known_unless_kept(
    make_plan: MakePlan, execution: Execution
) -> None:
    plan = make_plan("e1")
    run_cell(plan, execution)
    assert versions(plan) == []
    run_cell(plan, dataclasses.replace(execution, keep_after_run=1))
    assert versions(plan) == ["version-00000012"]


def test_files_that_were_kept_for_the_next_version_go_with_the_run(
    make_plan: MakePlan, execution: Execution
) -> None:
    plan = make_plan("s2")
    cell = dataclasses.replace(plan.cell, strategy=PluginSpec("async"), format="safetensors")
    plan = dataclasses.replace(plan, cell=cell)
    run_cell(plan, execution)
    assert any(isinstance(e, Retained) for e in whole_events(trace_path(plan.run_folder, 0)))
    assert versions(plan) == []


def test_versions_that_cannot_be_removed_cost_no_result(
    make_plan: MakePlan, execution: Execution, busy: Busy,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Neither during the training nor at its end. The log names them."""
    plan = make_plan("s1", keep=1)
    commit = CheckpointStore.commit

    def hold(store: CheckpointStore, staging: Path, version: Version) -> None:
        commit(store, staging, version)
        if version.position.step == 5:
            busy.hold(version.folder)

    monkeypatch.setattr(CheckpointStore, "commit", hold)
    run_cell(plan, execution)
    assert verify_seal(plan.run_folder)
    assert versions(plan) == ["version-00000005"]
    assert "version-00000005 cannot be removed" in caplog.text


@pytest.mark.parametrize("place", ["old", "partial", "logs"])
def test_a_run_goes_on_although_what_an_earlier_attempt_has_left_cannot_be_removed(
    make_plan: MakePlan, execution: Execution, busy: Busy, *, place: str,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    plan = make_plan("s1", keep=1)
    interrupt(plan, execution, monkeypatch, steps=6)
    folders = {
        "old": plan.checkpoint_folder / "version-00000003",
        "partial": plan.checkpoint_folder / "version-00000007.partial",
        "logs": execution.logs,
    }
    folders[place].mkdir(exist_ok=True)
    busy.hold(folders[place])
    run_cell(plan, dataclasses.replace(execution, resume=place != "logs"))
    assert verify_seal(plan.run_folder)
    starts = [e for e in whole_events(trace_path(plan.run_folder, 0)) if isinstance(e, Start)]
    assert len(starts) == (1 if place == "logs" else 2)
    named = {"old": "version-00000003", "partial": "version-00000007.partial", "logs": ".nfs0001"}
    assert named[place] in caplog.text


def test_a_run_that_dies_says_why_and_is_no_result(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan("e1")
    die_after(monkeypatch, 6, RuntimeError("out of luck"))
    with pytest.raises(RuntimeError, match="out of luck"):
        run_cell(plan, execution)
    manifest = read_json(plan.run_folder / "manifest.json")
    assert manifest["status"] == "failed"
    assert "out of luck" in manifest["error"]
    with pytest.raises(RunFolderError, match="the run did not end"):
        verify_seal(plan.run_folder)


def test_a_run_that_dies_names_the_memory_that_it_keeps(
    make_plan: MakePlan,
    execution: Execution,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    plan = make_plan("s2")
    strategy = PluginSpec("deepfreeze", (("memory", 1), ("shared", 0)))
    cell = dataclasses.replace(plan.cell, strategy=strategy, format="safetensors")
    plan = dataclasses.replace(plan, cell=cell, memory_folder=tmp_path / "memory")
    die_after(monkeypatch, 5, RuntimeError("out of luck"))
    with pytest.raises(RuntimeError):
        run_cell(plan, execution)
    (kept,) = (tmp_path / "memory").glob("*/*")
    assert f"{kept} keeps versions of the level memory for a restart" in caplog.text


def test_an_interrupted_run_starts_anew_by_default(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan("e1")
    interrupt(plan, execution, monkeypatch, steps=6)
    assert read_json(plan.run_folder / "manifest.json")["status"] == "interrupted"
    run_cell(plan, execution)
    trace = trace_path(plan.run_folder, 0).read_text()
    assert trace.count('"event":"start"') == 1
    assert read_json(plan.run_folder / "manifest.json")["attempts"] == 1


@pytest.mark.parametrize("steps", [5, 8, 11])
def test_with_resume_it_goes_on_and_ends_with_the_same_bits(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    whole = make_plan("e1", name="whole")
    run_cell(whole, execution)
    plan = make_plan("e1")
    resume = dataclasses.replace(execution, resume=True)
    interrupt(plan, resume, monkeypatch, steps=steps)
    run_cell(plan, resume)
    manifest = read_json(plan.run_folder / "manifest.json")
    assert (manifest["status"], manifest["attempts"]) == ("complete", 2)
    assert last_digest(plan) == last_digest(whole)


def test_a_resume_under_another_plan_starts_anew(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan("e1")
    interrupt(plan, execution, monkeypatch, steps=6)
    other = dataclasses.replace(
        plan, training=dataclasses.replace(plan.training, learning_rate=0.2)
    )
    run_cell(other, dataclasses.replace(execution, resume=True))
    assert read_json(plan.run_folder / "manifest.json")["attempts"] == 1


def test_a_version_whose_epoch_the_trace_lacks_is_taken_and_the_log_says_what_is_lost(
    make_plan: MakePlan,
    execution: Execution,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    plan = make_plan("e1")
    interrupt(plan, execution, monkeypatch, steps=6)
    trace = trace_path(plan.run_folder, 0)
    events = [json.loads(line) for line in trace.read_text().splitlines()]
    # Before the checkpoint at its end, and after it.
    assert [event["epoch"] for event in events if event["event"] == "epoch"] == [0, 0]
    kept = [json.dumps(event) + "\n" for event in events if event["event"] != "epoch"]
    trace.write_text("".join(kept))
    run_cell(plan, dataclasses.replace(execution, resume=True))
    assert read_json(plan.run_folder / "manifest.json")["attempts"] == 2
    assert 'trace-0.jsonl has no "epoch" event for epoch 0, which comes before' in caplog.text
    assert "version-00000004: tables will lack it" in caplog.text


@pytest.mark.parametrize(("strategy", "format"), [("native", "npz"), ("async", "safetensors")])
@pytest.mark.parametrize("interval", ["e1", "s3"])
def test_when_a_version_is_committed_all_that_its_restart_needs_is_on_storage(  # noqa: PLR0917
    make_plan: MakePlan,
    execution: Execution,
    monkeypatch: pytest.MonkeyPatch,
    interval: str,
    strategy: str,
    format: str,
) -> None:
    plan = make_plan(interval)
    cell = dataclasses.replace(plan.cell, strategy=PluginSpec(strategy), format=format)
    plan = dataclasses.replace(plan, cell=cell)
    synced: dict[int, bytes] = {}
    fsync, commit, needed = os.fsync, CheckpointStore.commit, []

    def note(descriptor: int) -> None:
        fsync(descriptor)
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_size < 10**6:
            synced[status.st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()

    def check(store: CheckpointStore, staging: Path, version: Version) -> None:
        step = version.position.step
        trace = [
            *map(json.loads, synced[trace_path(plan.run_folder, 0).stat().st_ino].splitlines())
        ]
        epochs = {event["epoch"] for event in trace if event["event"] == "epoch"}
        steps = sum(len(event["loss"]) for event in trace if event["event"] == "steps")
        manifest = json.loads(synced[(plan.run_folder / "manifest.json").stat().st_ino])
        needed.append((step, epochs >= {*range(step // 4)}, steps >= step, manifest["run_id"]))
        commit(store, staging, version)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(CheckpointStore, "commit", check)
    run_cell(plan, execution)
    run_id = read_json(plan.run_folder / "manifest.json")["run_id"]
    every = 4 if interval == "e1" else 3
    assert needed == [(step, True, True, run_id) for step in range(every, 13, every)]


def test_a_kill_between_the_last_checkpoint_of_an_epoch_and_its_end_costs_no_event(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan("e1")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointStore, "retain", lambda *_, **__: None)
        patch.setattr("ckptbench.training.loop.Trainer._record_epoch", killed)
        with pytest.raises(KeyboardInterrupt):
            run_cell(plan, execution)
    run_cell(plan, dataclasses.replace(execution, resume=True))
    run = Run.read(plan.run_folder)
    assert run.manifest["attempts"] == 2
    assert sorted(run.traces[0].epochs) == [0, 1, 2]
    assert run.ranks[0].steps.index.tolist() == [*range(12)]


def test_a_run_that_was_killed_when_it_was_complete_and_not_sealed_goes_on_from_its_last_version(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, plan = make_plan("e1", name="whole"), make_plan("e1")
    run_cell(whole, execution)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run, "seal", killed)
        with pytest.raises(KeyboardInterrupt):
            run_cell(plan, execution)
    assert read_json(plan.run_folder / "manifest.json")["status"] == "complete"
    run_cell(plan, dataclasses.replace(execution, resume=True))
    assert Run.read(plan.run_folder).manifest["attempts"] == 2
    assert last_digest(plan) == last_digest(whole)


def test_two_launchers_do_not_share_a_run_folder(make_plan: MakePlan, execution: Execution) -> None:
    plan = make_plan("e1")
    with (plan.run_folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(LaunchError, match="in use by another process: wait for it, or end"):
            run_cell(plan, execution)


def test_a_run_that_needs_more_memory_than_there_is_does_not_start(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan("e1")
    monkeypatch.setattr(preflight, "available_memory", lambda: 500_000_000)
    with pytest.raises(
        LaunchError, match=r"1 ranks of linear need about 1\.1 GB, but 0\.5 GB of memory"
    ):
        run_cell(plan, execution)
    assert not trace_path(plan.run_folder, 0).exists()


def test_a_warmup_that_leaves_no_step_to_time_is_refused(
    make_plan: MakePlan, execution: Execution
) -> None:
    plan = make_plan("e1")
    training = dataclasses.replace(plan.training, warmup_steps=12)
    with pytest.raises(
        LaunchError, match=r"warmup_steps is 12, and the run has 12 steps in all: none"
    ):
        run_cell(dataclasses.replace(plan, training=training), execution)


def test_a_dataset_with_too_few_samples_is_refused_before_the_start(
    make_plan: MakePlan, execution: Execution
) -> None:
    plan = make_plan("e1")
    cell = dataclasses.replace(plan.cell, batch_size=4096)
    with pytest.raises(DataError, match="4096"):
        run_cell(dataclasses.replace(plan, cell=cell), execution)


def test_an_unwritable_folder_is_named(make_plan: MakePlan, execution: Execution) -> None:
    plan = dataclasses.replace(make_plan("e1"), checkpoint_folder=Path("/proc/checkpoints"))
    with pytest.raises(LaunchError, match="/proc/checkpoints cannot be written"):
        run_cell(plan, execution)


def test_replicas_may_differ_in_running_statistics_alone() -> None:
    first = {"model/fc.kernel": "a", "model/norm.mean": "b", "optimizer/fc.kernel": "c"}
    check_replicas({0: first, 1: {**first, "model/norm.mean": "x"}})
    for name in ("model/fc.kernel", "optimizer/fc.kernel"):
        with pytest.raises(LaunchError, match=f"rank 2 ended with another {name} than rank 0"):
            check_replicas({0: first, 1: first, 2: {**first, name: "x"}})


def test_a_requeued_job_goes_on_by_itself_counts_it_and_is_no_timing(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan("never")
    in_job(monkeypatch, "42")
    for requeues, last_step in enumerate((3, 7)):
        stop_after(monkeypatch, last_step)
        with pytest.raises(RunStopped, match=f"after step {last_step}, by SIGUSR2"):
            run_cell(plan, execution)
        manifest = read_json(plan.run_folder / "manifest.json")
        assert (manifest["status"], manifest["requeues"]) == ("stopped", requeues)
    stop_after(monkeypatch, None)
    run_cell(plan, execution)
    began, manifest = manifest["started"], read_json(plan.run_folder / "manifest.json")
    assert (manifest["status"], manifest["attempts"], manifest["requeues"]) == ("complete", 3, 2)
    assert manifest["started"] == began
    assert Run.read(plan.run_folder).resumed


def test_a_requeue_that_found_no_checkpoint_is_no_timing_either(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan("never")
    in_job(monkeypatch, "42")
    stop(plan, execution, monkeypatch, after=0)
    run_cell(plan, execution)
    assert Run.read(plan.run_folder).manifest["attempts"] == 1
    assert Run.read(plan.run_folder).resumed


def whole_and_requeued(plan: Plan, execution: Execution, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The trace of a whole run whose job is started once more."""
    in_job(monkeypatch, "42")
    run_cell(plan, execution)
    (plan.run_folder / "seal.json").unlink()  # as Snakemake does before it runs a rule again
    in_job(monkeypatch, "42", restarted=True)
    return trace_path(plan.run_folder, 0).read_bytes()


def test_a_run_that_was_whole_when_its_job_was_stopped_is_not_trained_again(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan("e1")
    trace = whole_and_requeued(plan, execution, monkeypatch)
    run_cell(plan, execution)
    assert trace_path(plan.run_folder, 0).read_bytes() == trace
    assert not Run.read(plan.run_folder).resumed


def test_a_whole_run_of_another_environment_is_trained_again(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan("e1")
    trace = whole_and_requeued(plan, execution, monkeypatch)
    run_cell(dataclasses.replace(plan, lock_sha256="another"), execution)
    assert trace_path(plan.run_folder, 0).read_bytes() != trace


def test_asked_for_again_in_the_same_interactive_job_a_run_is_trained_again(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan("e1")
    in_job(monkeypatch, "42")
    run_cell(plan, execution)
    trace = trace_path(plan.run_folder, 0).read_bytes()
    run_cell(plan, execution)
    assert trace_path(plan.run_folder, 0).read_bytes() != trace


def test_a_run_that_fails_while_it_stops_goes_on_when_it_is_requeued(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan("e1")
    in_job(monkeypatch, "42")

    def launch(attempts: AttemptSeries) -> None:
        plan = attempts.plan
        run_rank(plan, ALONE, Unasked(6), started_ns=2)
        signal.raise_signal(signal.SIGUSR2)
        raise LaunchError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(AttemptSeries, "launch", launch)
        with pytest.raises(LaunchError):
            run_cell(plan, execution)
    assert read_json(plan.run_folder / "manifest.json")["status"] == "stopped"
    stop_after(monkeypatch, None)
    run_cell(plan, execution)
    assert Run.read(plan.run_folder).manifest["requeues"] == 1
    assert Run.read(plan.run_folder).resumed


def test_a_job_that_is_started_again_goes_on_though_its_launcher_was_killed(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PBS does not say whether a job has run before."""
    plan = make_plan("e1")
    in_job(monkeypatch, "42")
    monkeypatch.setattr(attempts, "was_requeued", lambda _: None)
    stop_after(monkeypatch, 6)
    with pytest.raises(RunStopped):
        run_cell(plan, execution)
    manifest = read_json(plan.run_folder / "manifest.json")
    write_json(plan.run_folder / "manifest.json", {**manifest, "status": "running"})
    stop_after(monkeypatch, None)
    run_cell(plan, execution)
    assert Run.read(plan.run_folder).manifest["attempts"] == 2


def test_on_a_login_node_nothing_is_measured(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    in_job(monkeypatch, "42")
    hosts = tmp_path / "pe_hostfile"
    hosts.write_text("another 1 q UNDEFINED\n")
    monkeypatch.setenv("PE_HOSTFILE", str(hosts))
    with pytest.raises(LaunchError, match="this host is no node of job 42: start the study inside"):
        run_cell(make_plan("e1"), execution)


def test_another_job_starts_a_stopped_run_anew(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan("never")
    in_job(monkeypatch, "42")
    stop(plan, execution, monkeypatch, after=3)
    in_job(monkeypatch, "43")
    run_cell(plan, execution)
    assert not Run.read(plan.run_folder).resumed


def test_a_run_that_failed_in_an_interactive_job_is_made_again(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan("e1")
    in_job(monkeypatch, "42")
    with monkeypatch.context() as patch:
        die_after(patch, 6, LaunchError("a rank died"))
        with pytest.raises(LaunchError):
            run_cell(plan, execution)
    run_cell(plan, execution)
    assert not Run.read(plan.run_folder).resumed


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
def test_a_stop_signal_is_a_request_only_while_a_run_lasts(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stop_requests() as request:
        assert request.signal is None
        signal.raise_signal(number)
        assert request.signal == number.name
    assert signal.getsignal(number) == before


def test_a_launcher_whose_workflow_is_gone_touches_nothing(
    make_plan: MakePlan, execution: Execution
) -> None:
    plan = make_plan("e1")
    run_cell(plan, execution)
    before = {path: path.read_bytes() for path in plan.run_folder.iterdir() if path.is_file()}
    with pytest.raises(LaunchError, match="the workflow that started this run is gone"):
        run_cell(
            plan, dataclasses.replace(execution, parent=os.getpid())
        )  # no process is its own parent
    assert {path: path.read_bytes() for path in before} == before
    assert verify_seal(plan.run_folder)


def test_the_ranks_are_watched_for_the_workflow_that_the_launcher_was_told_of(
    make_plan: MakePlan, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []

    def launch(attempts: AttemptSeries) -> None:
        told.append(attempts._assembler.limits)
        raise LaunchError("enough")

    # The workflow ends after the launcher has looked, for example while checkpoints are checked for a resume.
    monkeypatch.setattr(run, "is_orphan", lambda _: False)
    monkeypatch.setattr(AttemptSeries, "launch", launch)
    with pytest.raises(LaunchError, match="enough"):
        run_cell(make_plan("e1"), dataclasses.replace(execution, parent=os.getpid()))
    assert told[0].parent == os.getpid()

"""A run that its scheduler stops writes a checkpoint, is requeued, goes on, and ends with the bits of one that was not.

To Snakemake it is one job; to the study it is no timing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from snakemake_executor_plugin_submitit import ExecutorSettings
from snakemake_executor_plugin_submitit.resources import stop_seconds
from tests.cluster.commands import check, run
from tests.cluster.held_run import (
    EPOCHS,
    STEPS_PER_EPOCH,
    TARGET,
    HeldRun,
    hold,
    let_go_when_told_to_stop,
    one_run,
)
from tests.cluster.studies import end_well, resources, said, started, submitted
from tests.study.checkout import COLD, Checkout
from tests.study.warm.environments import warm_environments

PATIENCE_S = 600
"""Longer than Slurm takes to look at limits, on a machine under load."""
RUNTIME_MIN = 30
Start = Callable[..., HeldRun]
Pair = tuple[HeldRun, HeldRun]
"""A run that was stopped and its twin, the same cell, that was not."""


@pytest.fixture(scope="module")
def start(
    slurm: object, gridengine: object, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Start]:
    """Starts a study of one run, which goes on in the background."""
    with ExitStack() as stack:

        def start(
            framework: str, profile: str, *options: str, environments: Path = COLD
        ) -> HeldRun:
            folder = tmp_path_factory.mktemp(f"{profile}-{framework}") / "checkout"
            checkout = Checkout.make(folder, profile, *options, environments=environments)
            study = one_run(checkout, framework)
            process = stack.enter_context(started(checkout, TARGET, study=study))
            return HeldRun(checkout, process)

        yield start


def end_soon(checkout: Checkout) -> None:
    """Move the job's end so near that it is told to stop, and has all the time to do so that it would have had."""
    soon = f"EndTime=now+{stop_seconds(RUNTIME_MIN, ExecutorSettings().stop_seconds) + 10}"
    check(["scontrol", "update", f"JobId={submitted(checkout)[0]}", soon], {})


def lengthen(checkout: Checkout) -> None:
    """Stopped once is enough: Slurm looks at limits twice a minute, and would stop a slow machine again and again."""
    check(["scontrol", "update", f"JobId={submitted(checkout)[0]}", f"TimeLimit={RUNTIME_MIN}"], {})


def on(cluster: str, runtime_min: int = RUNTIME_MIN) -> list[str]:
    # The profile's is exclusive=true; here a run and its twin share the nodes.
    shared = ["--submitit-options", "exclusive=user"] if cluster == "slurm" else []
    return [cluster, *shared, *resources(cluster, runtime=runtime_min)]


@pytest.fixture(scope="module")
def at_limit(start: Start) -> dict[str, Pair]:
    """Stopped before their limit; their twins, in forked processes, run while they wait for it."""
    stopped = {"slurm": start("pytorch", *on("slurm"))}
    stopped["slurm"].when_told = lengthen
    hold(stopped.values(), PATIENCE_S)
    # Grid Engine moves no limit of a job that runs. It must have begun to train in the first four fifths of it.
    stopped["gridengine"] = start("chainer", *on("gridengine", runtime_min=2))
    hold(stopped.values(), PATIENCE_S)
    end_soon(stopped["slurm"].checkout)
    twins = {
        "slurm": start("pytorch", *on("slurm"), environments=warm_environments()),
        "gridengine": start("chainer", "local", environments=warm_environments()),
    }
    let_go_when_told_to_stop(stopped.values(), PATIENCE_S)
    return {name: ended((stopped[name], twins[name])) for name in stopped}


@pytest.fixture(scope="module")
def preempted(start: Start, at_limit: object) -> Pair:
    """Stopped by an urgent job, which takes a node of its."""
    stopped = start("chainer", *on("slurm"))
    hold([stopped], PATIENCE_S)
    node = stopped.nodes()[1]
    urgent = ["sbatch", "--parsable", "--partition=urgent", f"--nodelist={node}", "--exclusive"]
    ident = check([*urgent, "--mem=0", "--time=5", "--output=/dev/null", "--wrap=sleep 2"], {})
    try:
        let_go_when_told_to_stop([stopped], PATIENCE_S)
        twin = start("chainer", *on("slurm"), environments=warm_environments())
        return ended((stopped, twin))
    finally:
        run(["scancel", ident.strip()], {})


def ended(pair: Pair) -> Pair:
    for each in pair:
        end_well(each.checkout, each.study, PATIENCE_S)
    return pair


@pytest.fixture(params=["slurm at its limit", "gridengine at its limit", "slurm pre-empted"])
def pair(request: pytest.FixtureRequest) -> Pair:
    cluster, how = request.param.split(maxsplit=1)
    found: Pair = (
        request.getfixturevalue("preempted")
        if how == "pre-empted"
        else request.getfixturevalue("at_limit")[cluster]
    )
    return found


def test_snakemake_sees_one_job_that_ends_well(pair: Pair) -> None:
    checkout = pair[0].checkout
    assert len(submitted(checkout)) == 1
    assert "rror" not in said(checkout)


def test_the_manifest_counts_how_often_it_was_requeued(pair: Pair) -> None:
    stopped, twin = (each.manifest() for each in pair)
    assert stopped["status"] == "complete"
    # A slow machine's is also stopped before it has trained, which is no attempt to go on from.
    assert 2 <= stopped["attempts"] <= stopped["requeues"] + 1
    assert (twin["requeues"], twin["attempts"]) == (0, 1)


def test_it_goes_on_from_the_checkpoint_that_it_wrote_when_it_was_told_to_stop(pair: Pair) -> None:
    for trace in pair[0].traces():
        stops = [event["step"] for event in trace if event["event"] == "stop"]
        checkpoints = [event["step"] for event in trace if event["event"] == "save"]
        # Told to stop before its first step, an attempt has nothing new to write.
        assert list(dict.fromkeys(stops)) == checkpoints
        attempts = [event["attempt"] for event in trace if event["event"] == "start"]
        assert attempts == list(range(1, len(stops) + 2))
        made = [step for event in trace if event["event"] == "steps" for step in steps_of(event)]
        assert made == list(range(EPOCHS * STEPS_PER_EPOCH))


def steps_of(event: dict[str, Any]) -> range:
    first: int = event["first_step"]
    return range(first, first + len(event["loss"]))


def test_it_ends_with_the_bits_of_a_run_that_was_not_stopped(pair: Pair) -> None:
    stopped, twin = pair
    assert stopped.digests() == twin.digests()


def test_it_is_no_timing(pair: Pair) -> None:
    stopped, twin = (each.checkout.table("runs") for each in pair)
    assert list(stopped["timing_valid"]) == [False]
    assert list(twin["timing_valid"]) == [True]

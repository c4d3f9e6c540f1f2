"""A run that its scheduler stops, or that loses its nodes, is requeued, goes on, and ends with the bits of one that was left alone.

To Snakemake it is one job; to the study it is no timing. All hosts of a Grid Engine have one port, which two daemons on this machine
cannot share, so the loss of its second host is shown with replaced commands, by the executor's own test_lost_nodes.py.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from snakemake_executor_plugin_submitit import ExecutorSettings
from snakemake_executor_plugin_submitit.resources import stop_seconds
from tests.cluster.commands import check, poll, run
from tests.cluster.held_run import (
    EPOCHS,
    STEPS_PER_EPOCH,
    TARGET,
    HeldRun,
    hold,
    let_go_when_told_to_stop,
    one_run,
)
from tests.cluster.pbs import Pbs, archive
from tests.cluster.slurm import Slurm
from tests.cluster.studies import (
    ACCOUNT,
    TWO_HOSTS,
    end_well,
    resources,
    said,
    started,
    state,
    submitted,
)
from tests.study.checkout import COLD, Checkout
from tests.study.selection import FULL
from tests.study.warm.environments import warm_environments

PATIENCE_S = 600
"""Longer than Slurm takes to look at limits, on a machine under load."""
RUNTIME_MIN = 30
ROUNDS = ["--seconds-between-status-checks", "1"]
"""The workflow looks at its jobs every three seconds at the latest."""
CELL = "results/runs/{}-small_cnn-digits-r2-b8-n{}-{}-e1-deterministic-rep0/seal.json"
"""The run with checkpoints, without its baseline."""
FORMAT = {"pytorch": "torch_save", "chainer": "npz"}
Start = Callable[..., HeldRun]
Pair = tuple[HeldRun, HeldRun]
"""A run that was stopped, or lost nodes, and its twin, the same cell, that was left alone."""


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts a study of one run, which goes on in the background."""
    with ExitStack() as stack:

        def start(
            framework: str,
            profile: str,
            *options: str,
            interval: int | str = "never",
            environments: Path = COLD,
            environment: Mapping[str, str] | None = None,
        ) -> HeldRun:
            folder = tmp_path_factory.mktemp(f"{profile}-{framework}") / "checkout"
            checkout = Checkout.make(folder, profile, *options, environments=environments)
            study = one_run(checkout, framework, interval)
            cell = CELL.format(framework, EPOCHS, FORMAT[framework])
            target = TARGET if interval == "never" else cell
            process = stack.enter_context(
                started(checkout, target, study=study, environment=environment)
            )
            return HeldRun(checkout, process)

        yield start


def end_soon(checkout: Checkout) -> None:
    """Move the job's end so near that it is told to stop, and has all the time to do so that it would have had."""
    soon = f"EndTime=now+{stop_seconds(RUNTIME_MIN, ExecutorSettings().stop_seconds) + 10}"
    check(["scontrol", "update", f"JobId={submitted(checkout)[0]}", soon], {})


def lengthen(checkout: Checkout) -> None:
    """Stopped once is enough: Slurm looks at limits twice a minute, and would stop a slow machine again and again."""
    check(["scontrol", "update", f"JobId={submitted(checkout)[0]}", f"TimeLimit={RUNTIME_MIN}"], {})


@pytest.fixture(scope="module")
def pairs(
    start: Start, slurm: Slurm, gridengine: object, request: pytest.FixtureRequest
) -> Iterator[dict[str, Future[dict[str, Pair]]]]:
    """By profile, and by what befell them. Those of each scheduler run beside those of the others: mostly they wait."""
    warm_environments()  # they are made once
    lanes: dict[str, Callable[[], dict[str, Pair]]] = {
        "gridengine": lambda: on_gridengine(start),
        "slurm": lambda: on_slurm(start, slurm),
    }
    if archive() is not None:
        pbs: Pbs = request.getfixturevalue("pbs")
        lanes["abci"] = lambda: on_pbs(start, pbs)
    with ThreadPoolExecutor(len(lanes)) as pool:
        yield {profile: pool.submit(lane) for profile, lane in lanes.items()}


def on_gridengine(start: Start) -> dict[str, Pair]:
    """No limit of a job that runs can be moved, so it is told to stop in the middle of two minutes.

    Once: test_submitit_gridengine.py has a job that goes on after each of three limits.
    """
    halfway = ["--submitit-options", "parallel_environment=mpi", "stop_seconds=60"]
    stopped = start("chainer", "gridengine", *halfway, *resources("gridengine", runtime=2))
    stopped.stops = 3 if FULL else 1
    twin = start("chainer", "local", environments=warm_environments())
    let_go_when_told_to_stop([stopped], PATIENCE_S)
    return {"at its limits": (ended(stopped), ended(twin))}


def on_slurm(start: Start, slurm: Slurm) -> dict[str, Pair]:
    at_its_limit = at_slurms_limit(start)
    return {
        "at its limit": at_its_limit,
        **({"pre-empted": preempted(start)} if FULL else {}),
        # Its checkpoints change no bit of a run: the twin of the other one wrote none.
        "lost": (bereaved(start, slurm, "pytorch", *on_slurms_nodes()), at_its_limit[1]),
    }


def on_pbs(start: Start, pbs: Pbs) -> dict[str, Pair]:
    pbs.manage("set server node_fail_requeue=5")
    options = [*ACCOUNT, *TWO_HOSTS, *resources("abci", runtime=RUNTIME_MIN)]
    survivor = bereaved(start, pbs, "chainer", "abci", *options)
    client, warm = pbs.environment(), warm_environments()
    twin = start("chainer", "abci", *options, environments=warm, environment=client)
    return {"lost": (survivor, ended(twin))}


def on_slurms_nodes() -> list[str]:
    # The profile's is exclusive=true; here a run and its twin share the nodes.
    shared = ["--submitit-options", "exclusive=user"]
    return ["slurm", *shared, *resources("slurm", runtime=RUNTIME_MIN)]


def at_slurms_limit(start: Start) -> Pair:
    stopped = start("pytorch", *on_slurms_nodes())
    stopped.when_told = lengthen
    hold([stopped], PATIENCE_S)
    end_soon(stopped.checkout)
    twin = start("pytorch", *on_slurms_nodes(), environments=warm_environments())
    let_go_when_told_to_stop([stopped], PATIENCE_S)
    return (ended(stopped), ended(twin))


def preempted(start: Start) -> Pair:
    """Stopped by an urgent job, which takes a node of its."""
    stopped = start("chainer", *on_slurms_nodes())
    hold([stopped], PATIENCE_S)
    node = stopped.nodes()[1]
    urgent = ["sbatch", "--parsable", "--partition=urgent", f"--nodelist={node}", "--exclusive"]
    ident = check([*urgent, "--mem=0", "--time=5", "--output=/dev/null", "--wrap=sleep 2"], {})
    try:
        let_go_when_told_to_stop([stopped], PATIENCE_S)
        twin = start("chainer", *on_slurms_nodes(), environments=warm_environments())
        return (ended(stopped), ended(twin))
    finally:
        run(["scancel", ident.strip()], {})


def bereaved(start: Start, cluster: Slurm | Pbs, framework: str, *options: str) -> HeldRun:
    """It loses the second node of its first attempt, and the first of the next one."""
    # Not set for all lanes: the commands of PBS have the names of Grid Engine's.
    client = cluster.environment()
    stopped = start(framework, *options, *ROUNDS, interval=1, environment=client)
    lose(cluster, stopped, number=1)
    lose(cluster, stopped, number=0)
    return ended(stopped)


def lose(cluster: Slurm | Pbs, run: HeldRun, *, number: int) -> None:
    """Kill the node of this number while its ranks train, and bring it back when the job has gone back to the queue."""
    hold([run], PATIENCE_S)
    node = run.nodes()[number]
    run.lost = (*run.lost, node)
    time.sleep(3)  # the workflow must have seen that the job runs
    cluster.kill_node(node)
    if number == 0 and isinstance(cluster, Slurm):
        cluster.miss_node(node)
    run.let_go()
    assert poll(lambda: _is_back(cluster, run, number), PATIENCE_S), state(
        run.checkout, cluster.environment()
    )
    cluster.start_node(node)


def _is_back(cluster: Slurm | Pbs, run: HeldRun, number: int) -> bool:
    """Whether the job has gone back to the queue: by itself when its second node is lost, else by its scheduler."""
    if number:
        return f"lost {run.lost[-1]} and was requeued" in said(run.checkout)
    # Slurm has sent it back as soon as it misses the node, and starts it on others; PBS needs both.
    return isinstance(cluster, Slurm) or bool(check(["qselect", "-s", "Q"], cluster.environment()))


def ended(run: HeldRun) -> HeldRun:
    end_well(run.checkout, run.study, PATIENCE_S)
    return run


STOPPED = (
    "slurm at its limit",
    "gridengine at its limits",
    *(["slurm pre-empted"] if FULL else []),
)
"""Pre-empted jobs are told to stop as those at their limit are: test_executor_slurm.py has one."""


@pytest.fixture(params=STOPPED)
def pair(request: pytest.FixtureRequest, pairs: dict[str, Future[dict[str, Pair]]]) -> Pair:
    profile, how = request.param.split(maxsplit=1)
    return pairs[profile].result()[how]


@pytest.fixture(params=["slurm", "abci"])
def lost(request: pytest.FixtureRequest, pairs: dict[str, Future[dict[str, Pair]]]) -> Pair:
    """The ranks of PyTorch are started by srun, those of Chainer by an mpiexec."""
    return pairs[request.param].result()["lost"]


def test_snakemake_sees_one_job_that_ends_well(pair: Pair) -> None:
    checkout = pair[0].checkout
    assert len(submitted(checkout)) == 1
    assert "rror" not in said(checkout)


def test_the_manifest_counts_how_often_it_was_requeued(pair: Pair) -> None:
    stopped, twin = (each.manifest() for each in pair)
    assert stopped["status"] == "complete"
    assert stopped["requeues"] >= pair[0].stops
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


def test_the_workflow_names_the_node_that_the_job_lost_and_sees_one_job_that_ends_well(
    lost: Pair,
) -> None:
    text = said(lost[0].checkout)
    assert re.findall(r"lost (\S+) and was requeued", text) == [lost[0].lost[0]]
    assert text.count("was submitted: ") == 1
    assert "rror in rule" not in text


def test_it_goes_on_from_its_last_checkpoint_after_each_loss_of_a_node(lost: Pair) -> None:
    manifest = lost[0].manifest()
    assert (manifest["status"], manifest["requeues"], manifest["attempts"]) == ("complete", 2, 3)
    for trace in lost[0].traces():
        begun = [number for number, event in enumerate(trace) if event["event"] == "start"]
        first = [next(e["first_step"] for e in trace[n:] if e["event"] == "steps") for n in begun]
        assert first[0] == 0 < first[1] < first[2]


def test_it_ends_with_the_bits_of_a_run_that_lost_no_node(lost: Pair) -> None:
    survivor, twin = lost
    assert survivor.digests() == twin.digests()


def test_slurm_leaves_the_lost_node_out_of_the_next_try(
    pairs: dict[str, Future[dict[str, Pair]]],
) -> None:
    survivor, _ = pairs["slurm"].result()["lost"]
    assert survivor.lost[0] not in survivor.nodes()

"""Every recovery for real: ranks are lost, and training comes to the end that it would have had without."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import pytest
import small_run
from checkout import COLD, ROOT, Checkout, ranks_of
from warm.environments import warm_environments

from ckptbench.common.files import read_json
from ckptbench.failures.recovery.ulfm import OPTIONS, PREFIX, SHARED_MEMORY
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.interval import Interval
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.registry import NO_FORMAT
from ckptbench.run.events import Digest, Event, Regroup
from ckptbench.run.layout import trace_path
from ckptbench.run.trace import whole_events

END = Path(__file__).with_name("ulfm_at_the_end.py")
STUDY = "config/studies/tiny-recoveries.yaml"
TABLES = ("evaluations", "failures", "lineage", "runs")

pytestmark = pytest.mark.frameworks("chainer_ulfm", "horovod_pytorch", "pytorch")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    checkout = Checkout.make(tmp_path_factory.mktemp("recoveries") / "checkout")
    targets = [f"results/tables/{table}.parquet" for table in TABLES]
    result = checkout.run(*targets, study=STUDY)
    assert result.returncode == 0, result.stdout
    return checkout


def of(done: Checkout, table: str, recovery: str, failures: str = "twice") -> pd.DataFrame:
    rows = done.table(table)
    return rows[rows["run"].str.endswith(f"-listed_name_{failures}-{recovery}-rep0")]


def loss_difference(done: Checkout, recovery: str) -> float:
    """Test loss after the last epoch: that of the run that failed twice less that of its undisturbed run."""
    runs, tests = done.table("runs"), done.table("evaluations")
    own = runs[(runs["history"] == "listed name=twice") & (runs["recovery"] == recovery)]
    last = tests[tests["epoch"] == 1].groupby("run")[["loss_sum", "samples"]].sum()
    loss = last["loss_sum"] / last["samples"]
    (run,), (reference,) = own["run"], own["reference"]
    return float(loss[run] - loss[reference])


def test_survivors_that_share_the_whole_batch_end_as_if_nothing_had_failed(done: Checkout) -> None:
    """The network has neither batch norm nor dropout, so that the same samples give the same steps, but for rounding."""
    (lineage,) = of(done, "lineage", "ulfm").to_dict("records")
    assert (lineage["never_seen"], lineage["seen_twice"]) == (0, 0)
    assert abs(loss_difference(done, "ulfm")) < 1e-5
    assert abs(loss_difference(done, "ulfm batch=shrunk")) > 1e-3


def test_what_the_lost_ranks_would_have_read_is_counted(done: Checkout) -> None:
    (lineage,) = of(done, "lineage", "ulfm_batch_shrunk").to_dict("records")
    lost = of(done, "failures", "ulfm_batch_shrunk")["from_step"].tolist()
    assert lineage["never_seen"] == sum((lineage["steps"] - step) * 8 for step in lost)


def test_every_failure_struck_and_cost_something(done: Checkout) -> None:
    for recovery in ("ulfm", "ulfm_batch_shrunk"):
        own = of(done, "failures", recovery)
        assert own["ranks_after"].tolist() == [2, 1]
        assert (own["regroup_s"] > 0).all()


@pytest.mark.parametrize(
    ("failures", "kinds"),
    [("seeded_1", ["damage", "kill", "hang"]), ("seeded_2", ["kill", "kill", "hang"])],
)
def test_training_survives_failures_of_every_kind(
    done: Checkout, failures: str, kinds: list[str]
) -> None:
    """In a step, in a save, and while ranks recover. One of them ends all ranks."""
    assert of(done, "failures", "ulfm", failures)["kind"].tolist() == kinds
    (lineage,) = of(done, "lineage", "ulfm", failures).to_dict("records")
    assert lineage["never_seen"] == 0


def test_a_lost_rank_is_replaced_and_one_lost_meanwhile_has_all_start_again(done: Checkout) -> None:
    """The process in place of rank 1 is killed before it trains. MPI would let the survivors wait for it for ever."""
    _, while_coming, replaced = of(done, "failures", "ulfm_replace_True", "replaced").to_dict(
        "records"
    )
    assert (while_coming["attempt"], while_coming["from_step"]) == (1, 10)
    assert while_coming["launch_s"] > 0
    assert (replaced["attempt"], replaced["ranks_after"]) == (2, 3)
    assert replaced["from_step"] == 25
    assert replaced["regroup_s"] > replaced["launch_s"] == 0
    (lineage,) = of(done, "lineage", "ulfm_replace_True", "replaced").to_dict("records")
    assert (lineage["never_seen"], lineage["seen_twice"]) == (0, 0)


def test_a_loss_after_the_last_step_is_noticed_and_the_test_set_is_evaluated_whole(
    done: Checkout,
) -> None:
    _, last = of(done, "failures", "ulfm", "at_the_end").to_dict("records")
    # Rank 1 may begin its save, and be lost, before rank 0, whose clock counts, has written down that step 40 is done.
    assert last["step"] in (39, 40)
    assert last["from_step"] == 40
    evaluated = of(done, "evaluations", "ulfm", "at_the_end").groupby("epoch")["samples"].sum()
    assert evaluated.tolist() == [64, 64]


@pytest.mark.parametrize(
    ("when", "ranks"),
    [("in_a_step", "(0, 1)"), ("in_an_evaluation", "(0, 1)"), ("after_the_end", "None")],
)
def test_a_rank_that_is_lost_at_the_end_is_missed_by_all_or_by_none(when: str, ranks: str) -> None:
    """One of the others waits at the end already, and in the step that fails for the other. No rank hangs, or is torn down."""
    programs = COLD / "chainer_ulfm" / "bin"
    ended = subprocess.run(
        [programs / "mpiexec", *OPTIONS, "-n", "3", programs / "python", END, when],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    said = sorted(line for line in ended.stdout.splitlines() if "goes on with" in line)
    assert said == [f"rank {rank} goes on with {ranks}" for rank in (0, 1)], ended.stderr


def test_nothing_is_left_behind(done: Checkout) -> None:
    assert ranks_of(done.folder) == []
    launchers = [path.name.split("-")[3] for path in SHARED_MEMORY.glob(f"{PREFIX}*")]
    assert all(Path("/proc", launcher).exists() for launcher in launchers)  # of another run


def trained(
    cell: Cell,
    runs: Path,
    digits: Path,
    failures: Sequence[Mapping[str, object]],
    environments: Path,
) -> list[list[Event]]:
    """The events of each rank of a run in which no attempt but the first one was needed."""
    command = [
        sys.executable, "-m", "ckptbench.workflow", "train-cell",
        "--cell", json.dumps(cell.to_json()),
        "--training", json.dumps(dataclasses.asdict(small_run.TRAINING)),
        "--dataset", str(digits), "--runs", str(runs),
        "--environment", str(environments / cell.environment), "--lock", f"envs/{cell.environment}.txt",
        "--failures", json.dumps(failures),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert read_json(runs / cell.id / "manifest.json")["attempts"] == 1
    return [list(whole_events(trace_path(runs / cell.id, rank))) for rank in range(cell.ranks)]


def end_of(events: Sequence[Event]) -> dict[str, str]:
    """The digests of model and optimizer at the end."""
    return next(e.tensors for e in reversed(events) if isinstance(e, Digest))


REINIT = [
    # From a version. Rank 0, where the others would meet, is the second one that is lost: as it begins a save.
    ("pytorch", 2, "s5", {}, [{"step": 12, "rank": 1}, {"step": 25, "moment": "save", "rank": 0}], [10, 20]),
    ("pytorch_fsdp", 2, "s5", {}, [{"step": 12, "rank": 1}], [10]),
    # Without any: of each shard there is a replica.
    ("pytorch_hsdp", 4, "never", {"state": "replica"}, [{"step": 12, "rank": 1}], [12]),
]  # fmt: skip


def test_survivors_stay_and_train_on_with_a_new_process_as_if_nothing_had_failed(
    tmp_path: Path, digits: Path
) -> None:
    """The network has neither batch norm nor dropout: then two ranks have the same bits with shards or without."""
    ends = {}
    for framework, ranks, interval, options, failures, steps in REINIT:
        cell = dataclasses.replace(
            small_run.cell_of("pytorch", epochs=1, interval="s5", deterministic=True),
            framework=framework,
            model="plain_cnn",
            ranks=ranks,
            interval=Interval.parse(interval),
            format=NO_FORMAT if interval == "never" else "torch_save",
        )
        struck = dataclasses.replace(
            cell,
            faults=PluginSpec("listed", (("name", "one"),)),
            recovery=PluginSpec("reinit", tuple(options.items())),
        )
        if framework == "pytorch":
            ends["undisturbed"] = end_of(
                trained(cell, tmp_path, digits, [], warm_environments())[0]
            )
        # Real processes of one framework are enough: the others are forked.
        environments = COLD if framework == "pytorch" else warm_environments()
        events = trained(struck, tmp_path, digits, failures, environments)
        ends[framework] = end_of(events[0])
        launches = [
            sum(e == "launch" for e in (getattr(e, "name", "") for e in own)) for own in events
        ]
        assert sum(launches) == ranks + len(failures), "the others have kept their processes"
        for own in events:
            regroups = [e for e in own if isinstance(e, Regroup)]
            assert [e.step for e in regroups] == steps
            is_new = [e.reached == 0 for e in regroups]
            assert all(e.bytes > 0 for e in regroups if interval != "never")
            assert [e.bytes > 0 for e in regroups] == is_new or interval != "never"
    assert ends["pytorch"] == ends["undisturbed"]
    assert ends["pytorch_fsdp"] == ends["undisturbed"]
    assert ranks_of(tmp_path) == []

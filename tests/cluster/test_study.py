"""The small study through real schedulers: the same numbers as locally, and on Slurm the same tables and figures.

What makes tables and figures of runs is on no scheduler: rules of the host from which jobs are submitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ckptbench.analysis.tables.registry import DECIDED, TABLES
from ckptbench.common.files import read_json
from ckptbench.matrix.registry import on_any_ranks
from ckptbench.run.control.ranks import same_host
from ckptbench.run.control.variables import STEADY_HEAP, TUNABLES
from ckptbench.run.events import Start
from ckptbench.run.trace import last_events
from tests.cluster import pbs_conf
from tests.cluster.cluster import Cluster, client_of
from tests.cluster.slurm_conf import NODES
from tests.cluster.studies import ACCOUNT, VARIED, end_well, resources, started, vary
from tests.study.checkout import Checkout
from tests.study.selection import DRAWN, FULL
from tests.study.warm.environments import warm_environments

EVERY = on_any_ranks() if FULL else ["chainer", "pytorch", "tensorflow"]
"""One whose ranks an mpiexec starts, one whose ranks meet at an address, and one whose ranks are servers to one another."""
WHOLE: dict[str, Any] = {"framework": EVERY}
"""The small study's matrix, one rank and two, with checkpoints and without."""
LEFT_OUT: dict[str, Any] = {} if FULL else {"exclude": [{"framework": "tensorflow", "ranks": 1}]}
TWO_RANKS = {"framework": EVERY, "ranks": [2]}
SOME = WHOLE if FULL else {"framework": ["chainer", "pytorch"], "interval": ["never"]}
"""What is enough on a scheduler where no figure is drawn."""
SPREAD = "train_cell:tasks_per_node=1 if 'pytorch' in wildcards.cell else 8"
"""On PBS the ranks of PyTorch have two hosts. Those of all others have one, as the profile for ABCI says, and Chainer's are started by mpiexec."""
RUNS = {
    "on_slurm": 4 * len(EVERY) if FULL else 10,
    "on_gridengine": 2 * len(EVERY) if FULL else 2,
    "on_pbs": 4 * len(EVERY) if FULL else 3,
}
"""Of every run the first repeat."""
PATIENCE_S = 1500
# With other numbers of threads, sums are in another order.
ROUNDING = 1e-5
COLLECTED = tuple(f"results/tables/{table}.parquet" for table in ("runs", "steps", "evaluations"))
"""What is made of the runs where no figure is drawn."""
TABLES_OF_STUDIES = {**TABLES, **DECIDED}
FIGURES = DRAWN if FULL else DRAWN[:1]
"""Those that are drawn of the runs on Slurm, on the host from which jobs are submitted: test_study.py draws all of them."""
ON_SLURM = (
    () if FULL else (
        *(f"results/tables/{table}.parquet" for table in TABLES_OF_STUDIES), *(f"results/figures/{figure}.pdf" for figure in FIGURES), "results/answer.txt",
    )
)  # fmt: skip
TARGETS = {"on_slurm": ON_SLURM, "on_gridengine": COLLECTED, "on_pbs": COLLECTED}
OF_OTHER_STUDIES = (
    "digests",
    "values",
    "consistency",
    "resume_proof",
    "divergence",
    "determinism_cost",
    "restore",
    "failures",
    "goodput",
    "lineage",
)
"""Tables of proofs and of failures, which this study has none of."""
Folder = pytest.TempPathFactory


@pytest.fixture(scope="module")
def local(tmp_path_factory: Folder) -> Checkout:
    """On this machine, in processes that are forked after the import of their framework. Its tables and figures are looked at in tests/study/test_study.py."""
    folder = tmp_path_factory.mktemp("local") / "checkout"
    checkout = Checkout.make(folder, environments=warm_environments())
    return run_to_its_end(checkout, WHOLE, *COLLECTED, **LEFT_OUT)


@pytest.fixture(scope="module")
def on_slurm(slurm: object, tmp_path_factory: Folder) -> Checkout:
    """One run of each framework starts real processes on its two nodes, as all of a user's do."""
    checkout = Checkout.make(
        tmp_path_factory.mktemp("slurm") / "checkout", "slurm", *resources("slurm")
    )
    cold = vary(checkout, {**TWO_RANKS, "interval": ["never"]}, {}, repeats=1)
    with started(checkout, "runs", study=cold) as process:
        end_well(checkout, process, PATIENCE_S)
    assert len(checkout.seals()) == len(EVERY)
    checkout.change_environments(warm_environments())
    return run_to_its_end(checkout, WHOLE, *ON_SLURM, **LEFT_OUT)


@pytest.fixture(scope="module")
def on_gridengine(gridengine: object, tmp_path_factory: Folder) -> Checkout:
    """In forked processes: what Grid Engine starts and ends is tested in test_requeue.py."""
    folder = tmp_path_factory.mktemp("gridengine") / "checkout"
    options = resources("gridengine")
    checkout = Checkout.make(folder, "gridengine", *options, environments=warm_environments())
    return run_to_its_end(checkout, {**SOME, "ranks": [2]}, *COLLECTED)


@pytest.fixture(scope="module")
def on_pbs(pbs: Cluster, tmp_path_factory: Folder) -> Iterator[Checkout]:
    """In forked processes that enter the host of their job: what PBS starts and ends is tested in test_ranks.py."""
    folder = tmp_path_factory.mktemp("pbs") / "checkout"
    options = [*ACCOUNT, *resources("abci"), "--set-resources", SPREAD]
    checkout = Checkout.make(folder, "abci", *options, environments=warm_environments())
    with client_of(pbs):
        alone = [] if FULL else [{"framework": "pytorch", "ranks": 1}]
        yield run_to_its_end(checkout, SOME, *COLLECTED, exclude=alone)


def run_to_its_end(
    checkout: Checkout, matrix: dict[str, Any], *targets: str, **others: Any
) -> Checkout:
    """To what is asked for; with nothing, to all tables and figures."""
    study = vary(checkout, matrix, {}, repeats=1, **others)
    with started(checkout, *targets, study=study) as process:
        end_well(checkout, process, PATIENCE_S)
    return checkout


@pytest.fixture(scope="module", params=list(RUNS))
def done(request: pytest.FixtureRequest) -> Checkout:
    """A checkout in which the study, or its part, has been run on a cluster."""
    checkout: Checkout = request.getfixturevalue(request.param)
    return checkout


def test_every_run_is_complete_and_timed_by_a_job_of_the_scheduler(
    done: Checkout, request: pytest.FixtureRequest
) -> None:
    runs = done.table("runs")
    assert len(runs) == RUNS[request.node.callspec.params["done"]]
    assert set(runs["run"]) == set(done.seals())
    assert runs["timing_valid"].all()
    assert runs["scheduler_job"].notna().all()
    assert (runs["requeues"] == 0).all()


def test_slurm_s_study_makes_the_tables_and_figures_that_a_local_one_makes(
    on_slurm: Checkout,
) -> None:
    results = on_slurm.folder / "results"
    assert {path.stem for path in (results / "figures").iterdir()} == set(FIGURES)
    tables = {path.stem for path in (results / "tables").glob("*.parquet")}
    assert tables == set(TABLES_OF_STUDIES)
    for name in tables:
        table = on_slurm.table(name)
        assert list(table.columns) == [*TABLES_OF_STUDIES[name].table.names]
        assert len(table) > 0 or name in OF_OTHER_STUDIES
    paths = [path for kind in ("tables", "figures") for path in (results / kind).iterdir()]
    assert all(path.stat().st_size > 0 for path in paths)


@pytest.mark.parametrize("done", ["on_slurm", "on_gridengine"], indirect=True)
def test_runs_with_as_many_threads_as_locally_compute_bit_for_bit_the_same(
    done: Checkout, local: Checkout
) -> None:
    """One rank on Slurm, two on the host of Grid Engine. Two on two hosts have more threads than locally."""
    expected, found = losses(local), losses(done)
    there = threads(done)
    here = threads(local).loc[there.index]
    alike = here.index[here == there]
    compared = set(local.table("runs").set_index("run")["framework"].loc[alike])
    assert compared == set(EVERY) if FULL else compared == {"chainer", "pytorch"}
    expected = expected[expected.index.get_level_values("run").isin(alike)]
    pd.testing.assert_series_equal(found.loc[expected.index], expected, check_exact=True)


def threads(checkout: Checkout) -> pd.Series[int]:
    """Of each rank of a run, from the cores that the run had on a node."""
    runs = checkout.table("runs").set_index("run")
    each: pd.Series[int] = (runs["cores"] * runs["nodes"] // runs["ranks"]).clip(lower=1)
    return each


def test_losses_and_evaluations_are_those_of_the_local_runs(
    done: Checkout, local: Checkout
) -> None:
    trained = losses(done)
    np.testing.assert_allclose(trained, losses(local).loc[trained.index], rtol=ROUNDING)
    found = evaluations(done)
    expected = evaluations(local).loc[found.index]
    np.testing.assert_allclose(found["loss_sum"], expected["loss_sum"], rtol=ROUNDING)
    assert (found["correct"] == expected["correct"]).all()


def losses(checkout: Checkout) -> pd.Series[float]:
    return checkout.table("steps").set_index(["run", "rank", "step"])["loss"]


def evaluations(checkout: Checkout) -> pd.DataFrame:
    return checkout.table("evaluations").set_index(["run", "rank", "epoch"])


def test_two_ranks_have_two_nodes_of_slurm(on_slurm: Checkout) -> None:
    for run, ranks in on_slurm.table("runs").set_index("run")["ranks"].items():
        hosts = hosts_of(on_slurm, str(run))
        assert len(set(hosts)) == len(hosts) == ranks
        assert set(hosts) <= set(NODES)
        assert heaps_of(on_slurm, str(run)) == {STEADY_HEAP}


def test_slurm_ran_every_run_as_a_job_of_its_own(on_slurm: Checkout) -> None:
    assert on_slurm.table("runs")["scheduler_job"].nunique() == RUNS["on_slurm"]


def test_all_ranks_ran_on_the_host_of_grid_engine(on_gridengine: Checkout) -> None:
    runs = on_gridengine.table("runs")
    for run, ranks, host in zip(runs["run"], runs["ranks"], runs["host"], strict=True):
        hosts = hosts_of(on_gridengine, run)
        assert len(hosts) == ranks
        assert all(same_host(name, host) for name in hosts)


def test_ranks_have_one_host_of_pbs_by_the_profile_for_abci_or_two_where_asked_for(
    on_pbs: Checkout,
) -> None:
    runs = on_pbs.table("runs")
    assert {*zip(runs["framework"], runs["ranks"], strict=True)} >= {
        ("chainer", 1),
        ("chainer", 2),
        ("pytorch", 2),
    }
    for run, framework, ranks in zip(runs["run"], runs["framework"], runs["ranks"], strict=True):
        hosts = hosts_of(on_pbs, run)
        spread = ranks if "pytorch" in framework else 1
        assert (len(hosts), len(set(hosts))) == (ranks, spread)
        assert set(hosts) <= set(pbs_conf.NODES)
        assert heaps_of(on_pbs, run) == {STEADY_HEAP}


def hosts_of(checkout: Checkout, run: str) -> list[str]:
    """The node of each rank."""
    folder: Path = checkout.folder / "results" / "runs" / run
    return list(read_json(folder / "manifest.json")["hosts"])


def heaps_of(checkout: Checkout, run: str) -> set[str]:
    """How the ranks take memory."""
    traces = (checkout.folder / "results" / "runs" / run).glob("trace-*.jsonl")
    starts = [last_events(trace, Start)[0] for trace in traces]
    return {start.versions[TUNABLES] for start in starts if isinstance(start, Start)}


def test_a_restarted_study_has_nothing_to_do(
    done: Checkout, request: pytest.FixtureRequest
) -> None:
    sealed = done.seals()
    targets = TARGETS[request.node.callspec.params["done"]]
    result = done.run(*targets, study=VARIED)
    assert result.returncode == 0, result.stdout
    assert "Nothing to be done" in result.stdout
    assert done.seals() == sealed

"""The resume proof with every framework: restarts give the same bits back, and what they leave out is noticed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from checkout import Checkout
from selection import FULL
from warm.environments import warm_environments

from ckptbench.matrix import registry
from ckptbench.matrix.registry import (
    FRAMEWORKS,
    NOTHING,
    OF_SEVERAL_RANKS,
    OMISSIONS,
    RECOVERIES,
    on_any_ranks,
)

STUDY = "config/studies/tiny-determinism.yaml"
FIGURES = (
    "determinism",
    "determinism_cost",
    "divergence",
    "restore",
    "recovery",
)
TARGETS = () if FULL else tuple(f"results/figures/{figure}.pdf" for figure in FIGURES)
"""What the workflow makes: these figures and all that they need. test_study.py draws the others."""
IN_MEMORY = ("tmpfs", "ramfs", "overlay")
"""File systems that keep their files in memory, or may: no read comes from storage, and the table says so."""
COLD = ("chainer", "pytorch")
"""Frameworks of which a run of one rank restarts with a cold cache."""
WIDER: dict[str, Any] = {
    "matrix": {"ranks": [1, 2], "faults": ["killed_inside", "killed_thrice"]},
    "include": [
        {
            "framework": ["all", "pytorch_hsdp"], "ranks": 2, "faults": "killed_between",
            "omit": ["position", "momentum", "random", "dropout", "statistics", "first_update"],
        },
        {"framework": "pytorch", "ranks": 2, "faults": "none", "strategy": ["sharded", "async", "deepfreeze"]},
        {"framework": "all", "ranks": 2, "faults": {"listed": {"name": "twice"}}},
        {"framework": "all", "ranks": 1, "faults": "killed_between", "omit": "momentum"},
        {"framework": "pytorch_fsdp", "ranks": 2, "faults": {"listed": {"name": "twice"}}, "recovery": "torchrun"},
        {
            "framework": "horovod_tensorflow", "ranks": 1, "deterministic": False, "history": "rerun", "faults": "none",
        },
        {"framework": "horovod_tensorflow", "ranks": 1, "deterministic": False, "faults": "killed_inside"},
    ],
}  # fmt: skip
"""What `make test-full` changes in the matrix of the study, and adds to it."""
ALL = on_any_ranks()
"""The frameworks that `all` in the study stands for."""
KILLED = [
    *((name, 2, "killed_inside", 1) for name in FRAMEWORKS if name not in COLD),
    *((name, 1, "killed_inside", 1) for name in COLD),
    *((name, 2, "killed_thrice", 3) for name in ALL if FULL or name in COLD),
    *((name, 1, "killed_thrice", 3) for name in ALL if FULL),
]
"""Framework, ranks, history and number of kills of the runs that must end bitwise equal."""
FORGOTTEN = {
    "chainer": ("position", "momentum", "random", "statistics", "first_update"),
    "pytorch": ("momentum", "random"),
    "tensorflow": ("dropout",),
    "jax": ("random",),
}
"""The controls of the study, by framework; `make test-full` has all."""
NEEDED = [
    (name, part)
    for name, entry in FRAMEWORKS.items()
    for part in (entry.omissions if FULL else FORGOTTEN.get(name, ()))
]
STRUCK = [
    *((name, "restart") for name in (ALL if FULL else COLD)),
    *(
        (name, "torchrun")
        for name in (ALL if FULL else COLD)
        if RECOVERIES["torchrun"].serves(name)
    ),
]
"""Frameworks and recoveries of the runs that failures strike and that must end bitwise equal."""

pytestmark = pytest.mark.frameworks(*FRAMEWORKS)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout in which the study has been run to its figures."""
    folder = tmp_path_factory.mktemp("determinism") / "checkout"
    checkout = Checkout.make(folder, environments=warm_environments())
    if FULL:
        widen(folder / STUDY)
    result = checkout.run(*TARGETS, study=STUDY)
    assert result.returncode == 0, result.stdout
    return checkout


def widen(study: Path) -> None:
    content = yaml.safe_load(study.read_text())
    content["matrix"] |= WIDER["matrix"]
    content["include"] += WIDER["include"]
    study.write_text(yaml.safe_dump(content))


@pytest.mark.parametrize(("framework", "ranks", "history", "kills"), KILLED)
def test_a_killed_run_ends_bitwise_equal_in_deterministic_mode(
    done: Checkout, framework: str, ranks: int, history: str, kills: int
) -> None:
    proof = done.table("resume_proof")
    rows = proof[
        (proof["framework"] == framework)
        & (proof["ranks"] == ranks)
        & (proof["history"] == history)
        & proof["deterministic"]
        & (proof["strategy"] == "native")
    ].to_dict("records")
    assert rows
    for row in rows:
        assert row["attempts"] == kills + 1
        # Three epochs and the end, of every tensor of every rank.
        assert row["digests"] >= 4 * row["tensors"]
        assert row["bit_equal"], (row["first_epoch"], row["first_tensors"])
        assert (row["different_digests"], row["different_tensors"], row["missing"]) == (0, 0, "")


def test_a_run_killed_inside_saves_of_shards_ends_bitwise_equal(done: Checkout) -> None:
    proof, consistency = done.table("resume_proof"), done.table("consistency")
    rows = proof[(proof["history"] == "killed_inside") & (proof["framework"] == "pytorch_fsdp")]
    assert {"native", "dcp", "deepfreeze"} == set(rows["strategy"])
    assert rows["bit_equal"].all()
    versions = consistency[consistency["framework"] == "pytorch_fsdp"]
    assert {"native", "dcp", "deepfreeze"} <= set(versions["strategy"])


@pytest.mark.parametrize(("framework", "recovery"), STRUCK)
def test_a_run_that_failures_struck_ends_bitwise_equal_and_its_parts_are_its_loss(
    done: Checkout, framework: str, recovery: str
) -> None:
    proof, goodput = done.table("resume_proof"), done.table("goodput")
    (row,) = proof[
        (proof["framework"] == framework)
        & proof["history"].eq("listed name=twice")
        & proof["recovery"].eq(recovery)
    ].to_dict("records")
    assert (row["attempts"], row["bit_equal"], row["missing"]) == (3, True, "")
    (lost,) = goodput[
        (goodput["framework"] == framework) & goodput["recovery"].eq(recovery)
    ].to_dict("records")
    assert (lost["failures"], lost["repeats"]) == (2, 1)
    assert 0 < lost["goodput"] < 1
    # No bound that a busy machine could break: a stall of it in one of three runs is in no part.
    assert lost["parts_s"] > 0
    failures = done.table("failures")
    own = failures[failures["run"] == row["run"]]
    assert own["attempt"].tolist() == [1, 2]
    assert (own[["detection_s", "launch_s"]] > 0).all(axis=None)
    assert own["total_s"].sum() == pytest.approx(lost["parts_s"])


@pytest.mark.parametrize(("framework", "part"), NEEDED)
def test_a_restart_without_one_part_of_the_state_is_caught_and_the_part_is_named(
    done: Checkout, framework: str, part: str
) -> None:
    proof = done.table("resume_proof")
    rows = proof[(proof["framework"] == framework) & (proof["omit"] == part)]
    assert set(rows["ranks"]) == ranks_of(framework, part)
    assert not rows["bit_equal"].any()
    assert set(rows["missing"]) == {part}
    felt_by = "statistics" if part == "statistics" else "weights"
    assert all(felt_by in groups.split(", ") for groups in rows["groups"])
    assert rows["caught"].all()


def ranks_of(framework: str, part: str) -> set[int]:
    """Two where the part needs them. `make test-full` has every part with two."""
    one = framework in ("chainer", "pytorch") and part in ("position", "momentum", "random")
    if FULL:
        return {1, 2} if one or (part == "momentum" and framework in ALL) else {2}
    return {1} if one else {2}


def test_every_part_that_can_be_omitted_is_needed_by_some_framework() -> None:
    assert {part for _, part in NEEDED} | {NOTHING} == set(OMISSIONS)
    assert set(OF_SEVERAL_RANKS) < set(OMISSIONS)


def test_every_version_is_the_state_of_its_step(done: Checkout) -> None:
    """After training each strategy loads the versions that are left, in every framework, killed before or not."""
    consistency = done.table("consistency")
    assert set(consistency["framework"]) == set(FRAMEWORKS)
    wider = {"sharded", "async"} if FULL else set()  # test_consistency.py has all strategies
    assert set(consistency["strategy"]) == {"native", "deepfreeze", "dcp", *wider}
    assert (consistency["versions_compared"] == 2).all()
    # Each failure from outside may end a rank after a commit, and before its trace says so.
    untold = np.where(consistency["history"] == "listed name=twice", 2, 0)
    assert (consistency["versions_taken"] >= 8 - untold).all()
    torn = consistency[consistency["torn"] > 0]
    assert torn.empty, torn[["run", "torn_names"]].to_string()
    assert consistency["consistent"].all()


def test_every_restart_is_a_row_with_its_parts_and_cold_ones_read_from_storage(
    done: Checkout,
) -> None:
    restarts, failures = done.table("restore"), done.table("failures")
    killed = restarts[restarts["history"].isin(registry.KILLED)]
    assert len(killed) == failures["run"].isin(killed["run"]).sum()
    assert (killed["after"] != "").all()
    parts = [
        "launch_s",
        "meet_s",
        "import_s",
        "join_s",
        "data_s",
        "build_s",
        "load_s",
        "first_step_s",
    ]
    assert (restarts[parts] >= 0).all(axis=None)
    assert (restarts["total_s"] >= restarts[parts].sum(axis=1) - 1e-6).all()
    cold = restarts[restarts["cache"] == "cold"]
    assert len(cold) == 2
    assert cold["cold_shown"].notna().all()
    systems = done.table("runs").set_index("run")["checkpoint_file_system"]
    on_storage = ~cold["run"].map(systems).isin(IN_MEMORY)
    assert cold[on_storage]["cold_shown"].all()
    assert restarts[restarts["cache"] == "warm"]["cold_shown"].fillna(False).any()


def test_determinism_has_a_price_for_every_pair_of_baselines(done: Checkout) -> None:
    cost = done.table("determinism_cost")
    assert set(cost["framework"]) == {"chainer", "pytorch"}
    assert cost["cost"].notna().all()


@pytest.mark.parametrize("figure", FIGURES)
def test_every_figure_is_there(done: Checkout, figure: str) -> None:
    assert done.is_drawn(figure)


def test_the_killed_runs_are_no_timing(done: Checkout) -> None:
    runs = done.table("runs")
    killed = runs["history"].str.startswith(("killed", "listed"))
    assert killed.any()
    assert not runs[killed]["timing_valid"].any()
    assert runs[~killed]["timing_valid"].all()


def test_a_second_call_has_nothing_to_do(done: Checkout) -> None:
    assert "Nothing to be done" in done.run(*TARGETS, study=STUDY).stdout


def test_restarts_of_a_run_are_told_in_its_log(done: Checkout) -> None:
    runs = done.folder / "results" / "runs"
    name = next(path.name for path in runs.iterdir() if "killed_thrice" in path.name)
    log = Path(done.folder / "results" / "logs" / "train_cell" / f"{name}.log").read_text()
    assert log.count("as planned") == 3
    attempts = re.findall(r"^attempt (\d) goes on from", log, re.MULTILINE)
    assert attempts == ["2", "3", "4"]

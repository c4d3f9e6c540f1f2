"""The resume proof with every framework: restarts give the same bits back, and what they leave out is noticed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import Checkout
from selection import FULL
from warm.environments import warm_environments

from ckptbench.matrix.catalogue import FRAMEWORKS, NOTHING, OF_SEVERAL_RANKS, OMISSIONS

STUDY = "config/studies/tiny-determinism.yaml"
FIGURES = ("determinism", "determinism_cost", "divergence", "restore")
TARGETS = () if FULL else tuple(f"results/figures/{figure}.pdf" for figure in FIGURES)
"""What the workflow makes: these figures and all that they need. test_study.py draws the others."""
IN_MEMORY = ("tmpfs", "ramfs", "overlay")
"""File systems that keep their files in memory, or may: no read comes from storage, and the table says so."""
WIDER: dict[str, Any] = {
    "matrix": {"ranks": [1, 2]},
    "include": [
        {"framework": "all", "ranks": 2, "history": "killed_between", "omit": ["position", "momentum"]},
        {
            "framework": "horovod_tensorflow", "ranks": 1, "deterministic": False,
            "history": ["again", "killed_inside"],
        },
    ],
}  # fmt: skip
"""What `make test-full` changes in the matrix of the study, and adds to it."""
KILLED = [
    (2, "killed_thrice", 3),
    (1, "killed_inside", 1),
    *([(1, "killed_thrice", 3)] if FULL else []),
]
"""Ranks, history and number of kills of the runs of every framework that must end bitwise equal."""
NEEDED = [
    (name, part)
    for name, entry in FRAMEWORKS.items()
    for part in entry.omissions
    if FULL or part != "position" or name == next(iter(FRAMEWORKS))
]
"""The controls. Every framework reads its samples by the same reader, whose position the study forgets with one."""

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


@pytest.mark.parametrize(("ranks", "history", "kills"), KILLED)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_killed_run_ends_bitwise_equal_in_deterministic_mode(
    done: Checkout, framework: str, ranks: int, history: str, kills: int
) -> None:
    proof = done.table("resume_proof")
    (row,) = proof[
        (proof["framework"] == framework)
        & (proof["ranks"] == ranks)
        & (proof["history"] == history)
        & proof["deterministic"]
    ].to_dict("records")
    assert (row["kills"], row["attempts"]) == (kills, kills + 1)
    # Three epochs and the end, of every tensor of every rank.
    assert row["digests"] >= 4 * row["tensors"]
    assert row["bit_equal"], (row["first_epoch"], row["first_tensors"])
    assert (row["different_digests"], row["different_tensors"], row["missing"]) == (0, 0, "")


@pytest.mark.parametrize(("framework", "part"), NEEDED)
def test_a_restart_without_one_part_of_the_state_is_caught_and_the_part_is_named(
    done: Checkout, framework: str, part: str
) -> None:
    proof = done.table("resume_proof")
    rows = proof[(proof["framework"] == framework) & (proof["omit"] == part)]
    alone = part == "momentum"
    assert set(rows["ranks"]) == ({1, 2} if alone and FULL else {1} if alone else {2})
    assert not rows["bit_equal"].any()
    assert set(rows["missing"]) == {part}
    felt_by = "statistics" if part == "statistics" else "weights"
    assert all(felt_by in groups.split(", ") for groups in rows["groups"])
    assert rows["caught"].all()


def test_every_part_that_can_be_omitted_is_needed_by_some_framework() -> None:
    assert {part for _, part in NEEDED} | {NOTHING} == set(OMISSIONS)
    assert set(OF_SEVERAL_RANKS) < set(OMISSIONS)


def test_every_restart_is_a_row_with_its_parts_and_cold_ones_read_from_storage(
    done: Checkout,
) -> None:
    restarts, kills = done.table("restore"), done.table("kills")
    assert len(restarts) == len(kills)
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
    killed = runs["history"].str.startswith("killed")
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

"""Each finding of the published studies gets a verdict from tables alone, and intervals decide it."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from figure_tables import Study

from ckptbench.analysis.tables.store import write_tables
from ckptbench.figures.findings.published import (
    FINDINGS,
    FOUND,
    REFUTED,
    TABLES,
    UNDECIDED,
    UNTESTED,
    Verdict,
    published,
)
from ckptbench.matrix.interval import NEVER

REPOSITORY = Path(__file__).resolve().parents[2]
STUDY = Study(strategies=("native", "deepfreeze"))
KILLED = Study(frameworks=("pytorch",), deterministic=(True,))


def verdict(claim: str, tables: dict[str, pd.DataFrame]) -> Verdict | None:
    (finding,) = (each for each in FINDINGS if claim in each.claim)
    return finding.rule({name: tables[name] for name in (*finding.needs, "provenance")})


def with_stalls(**stall_s: tuple[float, float, float]) -> dict[str, pd.DataFrame]:
    """By framework: the stall and the ends of its interval."""
    tables = STUDY.tables()
    cost = tables["checkpoint_cost"]
    for framework, ends in stall_s.items():
        own = (cost["framework"] == framework) & (cost["strategy"] == "native")
        cost.loc[own, ["stall_s", "stall_s_lo", "stall_s_hi"]] = ends
    return tables


@pytest.mark.parametrize(
    ("tensorflow", "word"),
    [
        ((0.1, 0.05, 0.2), FOUND),
        ((0.1, 0.05, 0.6), UNDECIDED),
        ((3.0, 2.9, 3.1), REFUTED),
    ],
)
def test_who_is_lowest_is_told_by_intervals_that_do_not_overlap(
    tensorflow: tuple[float, float, float], word: str
) -> None:
    tables = with_stalls(chainer=(2.0, 1.9, 2.1), pytorch=(0.5, 0.4, 0.6), tensorflow=tensorflow)
    found = verdict("has the lowest cost", tables)
    assert found is not None
    assert found.word == word
    assert "TensorFlow" in found.evidence
    assert "s [" in found.evidence


def test_a_scale_that_was_not_measured_tells_nothing() -> None:
    one = dataclasses.replace(STUDY, ranks=(2,)).tables()
    assert verdict("Scale hardly changes", one) is None
    assert verdict("Scale hardly changes", STUDY.tables()) is not None


@pytest.mark.parametrize(
    ("nodes", "pytorch", "word"),
    [
        (1, (0.9, 0.85, 0.95), UNTESTED),
        (2, (0.9, 0.85, 0.95), FOUND),
        (2, (0.7, 0.5, 0.9), UNDECIDED),
        (2, (0.3, 0.2, 0.4), REFUTED),
    ],
)
def test_who_scales_best_is_told_only_across_nodes(
    nodes: int, pytorch: tuple[float, float, float], word: str
) -> None:
    tables = STUDY.tables()
    tables["provenance"]["nodes_max"] = nodes
    scaling = tables["scaling"]
    ends = ["efficiency", "efficiency_lo", "efficiency_hi"]
    scaling[ends] = (0.6, 0.55, 0.65)
    scaling.loc[scaling["framework"] == "pytorch", ends] = pytorch
    found = verdict("PyTorch scales best", tables)
    assert found is not None
    assert found.word == word


@pytest.mark.parametrize(
    ("ends", "word"),
    [
        ((0.05, 0.02, 0.09), FOUND),
        ((0.005, 0.002, 0.009), REFUTED),
        ((0.02, -0.01, 0.05), UNDECIDED),
    ],
)
def test_an_overhead_is_negligible_below_one_percent(ends: tuple[float, float, float], word: str) -> None:  # fmt: skip
    tables = STUDY.tables()
    tables["overhead"][["paired", "paired_lo", "paired_hi"]] = ends
    found = verdict("not negligible", tables)
    assert found is not None
    assert found.word == word


def test_deepfreeze_hides_what_native_waits_for() -> None:
    tables = STUDY.tables()
    cost = tables["checkpoint_cost"]
    found = verdict("hidden behind training", tables)
    assert found is not None
    assert found.word == FOUND
    ours = cost["strategy"] == "deepfreeze"
    cost.loc[ours, ["stall_s", "stall_s_lo", "stall_s_hi"]] *= 10_000
    refuted = verdict("hidden behind training", tables)
    assert refuted is not None
    assert refuted.word == REFUTED


def test_one_run_with_other_bits_refutes_that_a_restart_is_harmless() -> None:
    tables = KILLED.tables()
    proof = tables["resume_proof"]
    killed = proof["history"].str.startswith("killed") & (proof["omit"] == "nothing")
    assert killed.any()
    proof.loc[killed, "bit_equal"] = True
    found = verdict("does not harm", tables)
    assert found is not None
    assert found.word == FOUND
    proof.loc[proof.index[killed][0], "bit_equal"] = False
    refuted = verdict("does not harm", tables)
    assert refuted is not None
    assert refuted.word == REFUTED


@pytest.mark.parametrize(
    ("again", "word"),
    [((0.5, 0.4, 0.6), FOUND), ((0.7, 0.5, 0.9), UNDECIDED), ((0.95, 0.93, 0.97), REFUTED)],
)
def test_survivors_recover_without_a_checkpoint_if_more_of_their_time_is_useful(
    again: tuple[float, float, float], word: str
) -> None:
    study = Study(frameworks=("chainer",), ranks=(2,), struck=("listed_name_once",), recoveries=("restart", "ulfm"))  # fmt: skip
    tables = study.tables()
    assert verdict("without a checkpoint", tables) is None
    known = tables["goodput"]
    known["interval"] = str(NEVER)
    ends = ["goodput", "goodput_lo", "goodput_hi"]
    known.loc[known["recovery"] == "ulfm", ends] = (0.8, 0.75, 0.85)
    known.loc[known["recovery"] == "restart", ends] = again
    found = verdict("without a checkpoint", tables)
    assert found is not None
    assert found.word == word
    assert "goodput 80 % [75, 85]" in found.evidence


def test_the_page_has_every_finding_and_prefers_tables_that_decide() -> None:
    undecided = with_stalls(chainer=(1, 0.1, 9), pytorch=(1, 0.1, 9), tensorflow=(1, 0.1, 9))
    decided = with_stalls(chainer=(2, 1.9, 2.1), pytorch=(0.5, 0.4, 0.6), tensorflow=(0.1, 0.05, 0.2))  # fmt: skip
    page = published([undecided, decided])
    assert all(f"**{finding.claim}**" in page for finding in FINDINGS)
    assert "TensorFlow 0.1" in page


def test_the_script_prints_the_page(tmp_path: Path) -> None:
    tables = STUDY.tables()
    write_tables(tmp_path, {name: tables[name] for name in TABLES})
    done = subprocess.run(
        [sys.executable, REPOSITORY / "scripts/write_published.py", "--tables", tmp_path],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("# Findings of the published studies")

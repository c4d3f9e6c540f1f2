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
    UNTOLD,
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
        ((0.1, 0.05, 0.6), UNTOLD),
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
    ("ends", "word"),
    [((0.05, 0.02, 0.09), FOUND), ((0.005, 0.002, 0.009), REFUTED), ((0.02, -0.01, 0.05), UNTOLD)],
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


def test_survivors_that_lose_less_recover_without_a_checkpoint() -> None:
    study = Study(frameworks=("chainer",), ranks=(2,), struck=("listed_name_once",), recoveries=("restart", "ulfm"))  # fmt: skip
    tables = study.tables()
    assert verdict("without a checkpoint", tables) is None
    tables["goodput"]["interval"] = str(NEVER)
    found = verdict("without a checkpoint", tables)
    assert found is not None
    assert found.word == FOUND


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

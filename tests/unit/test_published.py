"""Each finding of the published studies gets a verdict from tables alone, and intervals decide it."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from figure_tables import Study

from ckptbench.analysis.tables.store import write_tables
from ckptbench.matrix.interval import NEVER
from ckptbench.report.answer.published import (
    FINDINGS,
    FOUND,
    REFUTED,
    TABLES,
    TITLE,
    UNDECIDED,
    UNTESTED,
    Verdict,
    published,
)

STUDY = Study(strategies=("native", "deepfreeze memory=1"))
KILLED = Study(frameworks=("pytorch",), deterministic=(True,))


def verdict(claim: str, tables: dict[str, pd.DataFrame]) -> Verdict | None:
    (finding,) = (each for each in FINDINGS if claim in each.claim)
    return finding.verdict({name: tables[name] for name in (*finding.needs, "provenance")})


def told(claim: str, tables: dict[str, pd.DataFrame]) -> Verdict:
    """Where the tables have something on it."""
    found = verdict(claim, tables)
    assert found is not None
    return found


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
    found = told("has the lowest cost", tables)
    assert found.word == word
    assert "TensorFlow" in found.evidence
    assert "s [" in found.evidence


def test_a_scale_that_was_not_measured_tells_nothing() -> None:
    one = dataclasses.replace(STUDY, ranks=(2,)).tables()
    assert verdict("Scale hardly changes", one) is None
    doubled = told("Scale hardly changes", STUDY.tables())
    assert doubled.word == UNTESTED


@pytest.mark.parametrize(
    ("most", "word"),
    [((1.1, 1.05, 1.15), FOUND), ((1.5, 1.0, 2.0), UNDECIDED), ((4.0, 3.8, 4.2), REFUTED), ((0.2, 0.19, 0.21), REFUTED),
     ((1.6, 1.43, 1.8), UNDECIDED), ((1.2, 1.0, 1.40), UNDECIDED)],
)  # fmt: skip
def test_a_cost_hardly_changes_where_it_grows_far_slower_than_the_ranks(
    most: tuple[float, float, float], word: str
) -> None:
    """From 1 to 4 ranks, of a stall of 1 s [0.98, 1.02]: the limit is 1.41 times as long."""
    tables = dataclasses.replace(STUDY, ranks=(1, 2, 4)).tables()
    cost = tables["checkpoint_cost"]
    cost[["stall_s", "stall_s_lo", "stall_s_hi"]] = (1.0, 0.98, 1.02)
    cost.loc[cost["ranks"] == 4, ["stall_s", "stall_s_lo", "stall_s_hi"]] = most
    found = told("Scale hardly changes", tables)
    assert found.word == word


@pytest.mark.parametrize(
    ("chainer", "word"),
    [((2.0, 1.9, 2.1), FOUND), ((2.0, 0.3, 9.0), UNDECIDED), ((0.2, 0.1, 0.3), REFUTED)],
)
def test_who_is_highest_is_told_in_the_same_way(
    chainer: tuple[float, float, float], word: str
) -> None:
    tables = with_stalls(chainer=chainer, pytorch=(0.5, 0.4, 0.6), tensorflow=(1.0, 0.9, 1.1))
    found = told("Chainer has the highest", tables)
    assert found.word == word


@pytest.mark.parametrize(
    ("costs", "word"),
    [
        ({"chainer": (0.1, 0.05, 0.2)}, FOUND),
        ({"chainer": (0.005, 0.001, 0.008)}, REFUTED),
        ({"chainer": (0.1, -0.2, 0.5)}, UNDECIDED),
        ({"chainer": (0.1, 0.05, 0.2), "pytorch": (0.1, -0.2, 0.5)}, FOUND),
        ({"chainer": (0.1, 0.05, 0.2), "pytorch": (-0.1, -0.2, 0.0)}, UNDECIDED),
    ],
)
def test_determinism_has_a_cost_where_all_that_can_tell_say_so(
    costs: dict[str, tuple[float, float, float]], word: str
) -> None:
    tables = dataclasses.replace(STUDY, frameworks=tuple(costs)).tables()
    for framework, ends in costs.items():
        own = tables["determinism_cost"]["framework"] == framework
        tables["determinism_cost"].loc[own, ["cost", "cost_lo", "cost_hi"]] = ends
    found = told("Determinism has a cost", tables)
    assert found.word == word


@pytest.mark.parametrize(
    ("memory", "word"),
    [((60.0, 58.0, 62.0), FOUND), ((75.0, 60.0, 90.0), UNDECIDED), ((100.0, 99.0, 101.0), REFUTED)],
)
def test_ranks_share_the_work_where_each_has_less_of_it(
    memory: tuple[float, float, float], word: str
) -> None:
    """Against 100 [99, 101] of one rank alone."""
    tables = STUDY.tables()
    known = tables["strategies"]
    names = ["memory_bytes", "memory_bytes_lo", "memory_bytes_hi"]
    known[names] = (100.0, 99.0, 101.0)
    known.loc[known["ranks"] == 2, names] = memory
    found = told("share the work", tables)
    assert found.word == word


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
    found = told("PyTorch scales best", tables)
    assert found.word == word


@pytest.mark.parametrize(
    ("ends", "word"),
    [
        ((0.9, 0.7, 1.1), FOUND),
        ((0.2, 0.15, 0.25), REFUTED),
        ((0.3, -0.1, 0.6), UNDECIDED),
    ],
)
@pytest.mark.parametrize(("interval", "rarer"), [("s4", 122 / 4), ("s61", 2.0), ("e2", 2.5)])
def test_an_overhead_is_negligible_below_one_percent_at_the_interval_of_the_study(
    interval: str, rarer: float, ends: tuple[float, float, float], word: str
) -> None:
    """The ends are those of an overhead at every fourth step: at other intervals it is in proportion."""
    tables = dataclasses.replace(STUDY, intervals=(interval,)).tables()
    scaled = [end * rarer / (122 / 4) for end in ends]
    tables["overhead"][["paired", "paired_lo", "paired_hi"]] = scaled
    found = told("not negligible", tables)
    assert found.word == word


def test_deepfreeze_hides_what_native_waits_for() -> None:
    """A short stall is not enough: slower steps count."""
    tables = STUDY.tables()
    overhead = tables["overhead"]
    ends = ["overhead", "overhead_lo", "overhead_hi"]
    ours = overhead["strategy_name"] == "deepfreeze"
    overhead.loc[~ours, ends] = 0.3, 0.25, 0.35
    overhead.loc[ours, ends] = 0.03, 0.02, 0.04
    assert told("hidden behind training", tables).word == FOUND
    overhead.loc[ours, ends] = 0.28, 0.24, 0.32
    assert told("hidden behind training", tables).word == REFUTED


def test_one_run_with_other_bits_refutes_that_a_restart_is_harmless() -> None:
    tables = KILLED.tables()
    proof = tables["resume_proof"]
    killed = proof["history"].str.startswith("killed") & (proof["omit"] == "nothing")
    assert killed.any()
    proof.loc[killed, "bit_equal"] = True
    found = told("does not harm", tables)
    assert found.word == FOUND
    proof.loc[proof.index[killed][0], "bit_equal"] = False
    refuted = told("does not harm", tables)
    assert refuted.word == REFUTED


@pytest.mark.parametrize(
    ("again", "word"),
    [((0.5, 0.4, 0.6), FOUND), ((0.7, 0.5, 0.9), UNDECIDED), ((0.95, 0.93, 0.97), REFUTED)],
)
def test_survivors_recover_without_a_checkpoint_if_more_of_their_time_is_useful(
    again: tuple[float, float, float], word: str
) -> None:
    study = Study(frameworks=("chainer",), ranks=(2,), struck=("listed name=once",), recoveries=("restart", "ulfm replace=True"))  # fmt: skip
    tables = study.tables()
    assert verdict("without a checkpoint", tables) is None
    known = tables["goodput"]
    known["interval"] = str(NEVER)
    ends = ["goodput_of_ranks", "goodput_of_ranks_lo", "goodput_of_ranks_hi"]
    known.loc[known["recovery_name"] == "ulfm", ends] = (0.8, 0.75, 0.85)
    known.loc[known["recovery"] == "restart", ends] = again
    found = told("without a checkpoint", tables)
    assert found.word == word
    assert "80 % [75, 85] where survivors go on" in found.evidence


@pytest.mark.parametrize(("import_s", "word", "going_on"), [(3.0, FOUND, 2), (0.0, UNDECIDED, 3)])
def test_shards_need_a_checkpoint_where_all_begin_anew_without_one(
    import_s: float, word: str, going_on: int
) -> None:
    frameworks = ("pytorch", "pytorch_fsdp", "pytorch_hsdp")
    tables = Study(frameworks=frameworks, ranks=(2,), struck=("listed name=once",), recoveries=("reinit state=replica",)).tables()  # fmt: skip
    assert verdict("sharding the model", tables) is None
    known = tables["goodput"]
    known["interval"] = str(NEVER)
    known[["launch_s", "import_s"]] = 0.0
    known.loc[known["framework"] == "pytorch_fsdp", "import_s"] = import_s
    found = told("sharding the model", tables)
    assert found.word == word
    assert found.evidence.count("training goes on") == going_on
    assert "FSDP2, ResNet-50, 2 ranks: no other holds what was lost, and " in found.evidence


def test_the_page_has_every_finding_and_prefers_tables_that_decide() -> None:
    undecided = with_stalls(chainer=(1, 0.1, 9), pytorch=(1, 0.1, 9), tensorflow=(1, 0.1, 9))
    decided = with_stalls(chainer=(2, 1.9, 2.1), pytorch=(0.5, 0.4, 0.6), tensorflow=(0.1, 0.05, 0.2))  # fmt: skip
    page = published([undecided, decided])
    assert all(f"**{finding.claim}**" in page for finding in FINDINGS)
    assert "TensorFlow 0.1" in page
    assert page.count("Measured on ") == 1, "both were measured on one machine: said once"
    assert re.search(r"TensorFlow 0\.1\d? .* \[1\]\.$", page, re.MULTILINE)


def test_studies_that_contradict_each_other_are_both_shown() -> None:
    found = with_stalls(chainer=(2, 1.9, 2.1), pytorch=(0.5, 0.4, 0.6), tensorflow=(0.1, 0.05, 0.2))  # fmt: skip
    refuted = with_stalls(chainer=(2, 1.9, 2.1), pytorch=(0.5, 0.4, 0.6), tensorflow=(3, 2.9, 3.1))
    for studies in ([found, refuted], [refuted, found]):
        page = published(studies)
        (_, after) = page.split("**TensorFlow, which writes HDF5, has the lowest cost.**")
        section, _ = after.split("**Chainer has", maxsplit=1)
        assert "**Differs between studies.**" in section
        assert "**Found again.**" in section
        assert "**Refuted.**" in section
        assert "TensorFlow 3" in section


def test_the_verb_prints_the_page(tmp_path: Path) -> None:
    tables = STUDY.tables()
    write_tables(tmp_path, {name: tables[name] for name in TABLES})
    done = subprocess.run(
        [sys.executable, "-m", "ckptbench.workflow", "write-published", "--tables", tmp_path],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(TITLE)

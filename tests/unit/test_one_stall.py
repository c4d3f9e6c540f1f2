"""How long one checkpoint stops training is one number, wherever it stands."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from decision_tables import CHOICES
from run_folders import FakeRun, cell

from ckptbench.analysis.collect.runs import collect
from ckptbench.analysis.derive import derive
from ckptbench.decide.decision import decide
from ckptbench.decide.inputs import decision_costs
from ckptbench.decide.rates import read_rates
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.report.answer import quantities
from ckptbench.report.answer.study import screen, shown
from ckptbench.report.figures import FIGURES

RATES = Path(__file__).resolve().parents[2] / "config" / "failures"
ENDS = ("stall_s", "stall_s_lo", "stall_s_hi")


def uneven(repeat: int) -> FakeRun:
    """Of its stalls, 0.1 s each, one lasts 0.9 s: mean, median and the median of all runs differ."""

    def stall_s(rank: int, step: int) -> float:
        return 0.9 if step == 30 + 10 * repeat else 0.1 + 0.01 * repeat

    return FakeRun(cell=cell("s10", epochs=1, repeat=repeat), steps_per_epoch=50, stall_s=stall_s)


def waiting(repeat: int) -> FakeRun:
    """Of its stalls 0.3 s each, and 0.2 s more in which the next save waited."""
    own = cell("s10", strategy=PluginSpec("async"), format="safetensors", epochs=1, repeat=repeat)
    return FakeRun(cell=own, steps_per_epoch=50, stall_s=lambda rank, step: 0.3, hold_s={"save": 0.2}, durable_s=0.9)  # fmt: skip


def baseline(repeat: int) -> FakeRun:
    return FakeRun(cell=cell("never", epochs=1, repeat=repeat), steps_per_epoch=50)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pd.DataFrame]:
    """Those of a tiny study."""
    runs = [run(repeat) for repeat in range(3) for run in (uneven, waiting, baseline)]
    collected = collect([run.write(tmp_path_factory.mktemp("study")) for run in runs])
    known = derive(collected)
    decision = decide(
        decision_costs(known), read_rates(RATES), CHOICES.model_copy(update={"gpus": []})
    )
    return {**known, **decision}


def of_table(table: pd.DataFrame, *names: str) -> list[tuple[float, ...]]:
    return sorted(table[list(names)].itertuples(index=False, name=None))


def test_tables_and_decision_have_the_same_stall_with_the_same_interval(
    tables: dict[str, pd.DataFrame],
) -> None:
    known = of_table(tables["checkpoint_cost"], *ENDS)
    assert [stall_s for stall_s, *_ in known] == pytest.approx([np.mean([0.26, 0.268, 0.276]), 0.3])
    assert known == of_table(tables["strategies"], "stall_s", "stall_s_lo", "stall_s_hi")
    assert known == of_table(tables["decision_costs"], *ENDS)


def test_the_answer_has_that_stall(tables: dict[str, pd.DataFrame]) -> None:
    known = of_table(tables["checkpoint_cost"], *ENDS)
    assert known == of_table(shown(tables), *ENDS)
    (title,) = {line.cells[0] for line in screen(tables).lines if line.cells[0]}
    stops = re.sub(r"slow steps by [\d.]+ s", "", title)
    assert sorted(re.findall(r"[\d.]+ s\b", stops)) == [quantities.amount(stall_s, quantities.SECONDS) for stall_s, *_ in known]  # fmt: skip


def test_the_mark_of_the_figure_is_that_stall(tables: dict[str, pd.DataFrame]) -> None:
    figure = FIGURES["stall"].draw(tables)
    marks = [
        each.get_segments()[0][0][0]
        for axes in figure.axes
        for each in axes.collections
        if each.get_gid() == "mean stall_s"
    ]
    assert sorted(marks) == sorted(tables["checkpoint_cost"]["stall_s"])

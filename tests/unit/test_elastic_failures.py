"""What a failure costs where ranks go on without others: every moment belongs to one part, and the parts add up to the loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from elastic_runs import Elastic, replaced, shrunken

from ckptbench.analysis.collect.runs import collect
from ckptbench.analysis.tables.columns import LOST_PARTS

WHOLE_S = 12.5
"""Twelve steps of 1 s, and two evaluations."""


def rows(run: Elastic, **end: int) -> list[dict[str, Any]]:
    found = collect([run.end(**end)])["failures"].to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in found]


def parts(row: dict[str, Any]) -> dict[str, float]:
    """Those that are not 0."""
    assert row["total_s"] == pytest.approx(sum(row[name] for name in LOST_PARTS))
    return {name: row[name] for name in LOST_PARTS if abs(row[name]) > 1e-6}


def wall_s(run: Elastic) -> float:
    """From the first step to the end."""
    return run.now - 104.0


def test_survivors_that_go_on_pay_for_the_step_that_failed_and_for_slower_ones(
    tmp_path: Path,
) -> None:
    run = shrunken(tmp_path)
    (row,) = rows(run)
    assert (row["victim"], row["step"], row["from_step"], row["ranks_after"]) == ("rank 0", 4, 4, 2)
    known = {
        "unfinished_s": 0.25, "detection_s": 0.125, "regroup_s": 0.5, "load_s": 0.25, "slower_s": 8 * 0.5
    }  # fmt: skip
    assert parts(row) == pytest.approx(known, abs=1e-5)
    assert row["total_s"] == pytest.approx(wall_s(run) - WHOLE_S)


def test_steps_are_slower_until_a_new_rank_has_joined_and_its_start_is_no_part(
    tmp_path: Path,
) -> None:
    run = replaced(tmp_path)
    (row,) = rows(run)
    known = {
        "unfinished_s": 0.25, "detection_s": 0.125, "regroup_s": 0.5 + 0.125, "load_s": 0.25 + 0.375,
        "slower_s": 5 * 0.5,
    }  # fmt: skip
    assert parts(row) == pytest.approx(known, abs=1e-5)
    assert (row["ranks_after"], row["import_s"]) == (2, 0.0)
    assert row["total_s"] == pytest.approx(wall_s(run) - WHOLE_S)


def test_the_first_step_after_ranks_have_joined_counts_where_it_is_slower(tmp_path: Path) -> None:
    """A framework may compile in it. What other steps take longer is no part of the failure."""
    run = Elastic(tmp_path)
    run.steps(0, 4)
    run.strike(0)
    run.lose(0)
    run.regroup([1, 2], step=4, reached={1: 4, 2: 4})
    began = run.now
    run.steps(4, 8, seconds=1.5)
    run.start([0], began=began)
    run.regroup([0, 1, 2], step=8, reached={0: 0, 1: 8, 2: 8})
    run.steps(8, 9, seconds=3.0)
    run.steps(9, 12)
    (row,) = rows(run)
    assert row["slower_s"] == pytest.approx(4 * 0.5 + 2.0)
    assert row["total_s"] == pytest.approx(wall_s(run) - WHOLE_S)


def test_survivors_that_go_back_do_work_again(tmp_path: Path) -> None:
    run = Elastic(tmp_path)
    run.steps(0, 5)
    run.strike(2)
    run.now += 0.5
    run.lose(2)
    run.regroup([0, 1], step=3, reached={0: 5, 1: 5})
    run.steps(3, 12, seconds=1.25)
    (row,) = rows(run)
    known = {
        "detection_s": 0.5, "regroup_s": 0.5, "load_s": 0.25, "again_s": 2.5, "slower_s": 7 * 0.25
    }  # fmt: skip
    assert parts(row) == pytest.approx(known, abs=1e-5)
    assert (row["step"], row["from_step"]) == (5, 3)
    assert row["total_s"] == pytest.approx(wall_s(run) - WHOLE_S)


def test_a_step_that_ends_after_the_strike_is_not_lost(tmp_path: Path) -> None:
    run = Elastic(tmp_path)
    run.steps(0, 4)
    run.now += 0.5
    run.strike(2)
    run.now -= 0.5
    run.steps(4, 5)
    run.now += 0.25
    run.regroup([0, 1], step=5, reached={0: 5, 1: 5})
    run.steps(5, 12)
    (row,) = rows(run)
    assert parts(row) == pytest.approx(
        {"detection_s": 0.25, "regroup_s": 0.5, "load_s": 0.25}, abs=1e-5
    )
    assert row["total_s"] == pytest.approx(wall_s(run) - WHOLE_S)


def test_a_failure_while_ranks_regroup_cuts_the_one_before(tmp_path: Path) -> None:
    run = Elastic(tmp_path, ranks=4)
    run.steps(0, 4)
    run.strike(3)
    run.now += 0.5
    noticed = run.now
    run.now += 0.25
    run.strike(2)
    run.now = noticed
    run.regroup([0, 1], step=4, reached={0: 4, 1: 4}, agreed_s=1.0)
    run.steps(4, 12, seconds=1.5)
    first, second = rows(run)
    assert parts(first) == pytest.approx({"detection_s": 0.5, "regroup_s": 0.25}, abs=1e-5)
    assert parts(second) == pytest.approx(
        {"regroup_s": 0.75, "load_s": 0.25, "slower_s": 4.0}, abs=1e-5
    )
    assert (second["ranks_after"], second["from_step"]) == (2, 4)
    assert first["ranks_after"] != first["ranks_after"] or first["ranks_after"] is None
    assert first["total_s"] + second["total_s"] == pytest.approx(wall_s(run) - WHOLE_S)


def test_a_failure_before_the_first_step_after_another_counts_no_time_twice(
    tmp_path: Path,
) -> None:
    """The ranks are ready, and have worked on a step for a while: that time is the first failure's."""
    run = Elastic(tmp_path, ranks=4)
    run.steps(0, 4)
    run.strike(3)
    run.regroup([0, 1, 2], step=4, reached={0: 4, 1: 4, 2: 4})
    run.now += 0.5
    run.strike(2)
    run.now += 0.125
    run.regroup([0, 1], step=4, reached={0: 4, 1: 4})
    run.steps(4, 12)
    first, second = rows(run)
    assert parts(first) == pytest.approx(
        {"regroup_s": 0.5, "load_s": 0.25, "rest_s": 0.5}, abs=1e-5
    )
    assert parts(second) == pytest.approx(
        {"detection_s": 0.125, "regroup_s": 0.5, "load_s": 0.25}, abs=1e-5
    )
    assert first["total_s"] + second["total_s"] == pytest.approx(wall_s(run) - WHOLE_S)


def test_two_losses_one_after_the_other_share_the_slower_steps(tmp_path: Path) -> None:
    run = Elastic(tmp_path)
    run.steps(0, 4)
    run.strike(2)
    run.regroup([0, 1], step=4, reached={0: 4, 1: 4})
    run.steps(4, 8, seconds=1.5)
    run.strike(1)
    run.regroup([0], step=8, reached={0: 8})
    run.steps(8, 12, seconds=3.0)
    first, second = rows(run)
    assert (first["slower_s"], second["slower_s"]) == pytest.approx((2.0, 8.0), abs=1e-5)
    assert (first["ranks_after"], second["ranks_after"]) == (2, 1)
    assert first["total_s"] + second["total_s"] == pytest.approx(wall_s(run) - WHOLE_S)


def test_ranks_that_join_while_another_failure_lasts_count_with_that_one(tmp_path: Path) -> None:
    run = Elastic(tmp_path)
    run.steps(0, 4)
    run.strike(2)
    run.regroup([0, 1], step=4, reached={0: 4, 1: 4})
    began = run.now
    run.steps(4, 6)
    run.strike(0, "hang")
    run.steps(6, 10, seconds=1.25)
    run.start([2], began=began)
    run.regroup([0, 1, 2], step=10, reached={0: 10, 1: 10, 2: 0}, agreed_s=0.25, ready_s=0.5)
    run.steps(10, 12)
    first, second = rows(run)
    assert parts(first) == pytest.approx({"regroup_s": 0.5, "load_s": 0.25}, abs=1e-5)
    assert parts(second) == pytest.approx(
        {"regroup_s": 0.25, "load_s": 0.5, "slower_s": 1.0}, abs=1e-5
    )
    assert second["from_step"] != second["from_step"] or second["from_step"] is None
    assert second["ranks_after"] == 2


def test_a_restart_after_a_shrink_has_the_parts_of_a_restart(tmp_path: Path) -> None:
    run = shrunken(tmp_path, interval="s4")
    run.now += 0.125
    run.strike(1)
    run.now += 0.5
    run.lose(1)
    run.relaunch(8)
    run.steps(8, 12)
    second = rows(run, attempts=2)[1]
    known = {
        "unfinished_s": 0.125, "detection_s": 0.5, "launch_s": 1.0, "import_s": 2.0, "build_s": 1.0, "again_s": 4.0
    }  # fmt: skip
    assert parts(second) == pytest.approx(known, abs=1e-5)
    assert (second["from_step"], second["ranks_after"]) == (8, 3)

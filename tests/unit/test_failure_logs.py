"""The rate of a log: failures ÷ time at risk, merged within one restart, with an interval that holds the truth where failures cluster."""

from __future__ import annotations

import math
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from drawn_logs import SHAPES, coverage

from ckptbench.common.errors import DataError
from ckptbench.decide import rates
from ckptbench.decide.clock import seconds_of as moment
from ckptbench.decide.exposure import Exposure
from ckptbench.decide.rates import (
    FailureRate,
    clustered_interval,
    exact_interval,
    overdispersion,
    rate_of_count,
    read_log,
    read_rate,
)

HOUR = 3600


def watched(hours: list[float], length: float) -> Exposure:
    """Of one GPU."""
    clock_s = np.array([0.0, length * HOUR])
    return Exposure(np.array(hours) * HOUR, clock_s, clock_s / HOUR)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("failures", [10, 40])
def test_the_interval_holds_the_truth_where_failures_cluster(name: str, failures: float) -> None:
    assert coverage(name, failures, 400, np.random.default_rng(26)) >= 0.93


def test_intervals_of_a_constant_rate_would_not_hold_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "overdispersion", lambda log: 1.0)
    monkeypatch.setattr(rates, "_student", lambda failures: 1.96)
    assert coverage("bursts of 3 over half a gap", 40, 400, np.random.default_rng(26)) < 0.8


def test_eight_failures_at_once_and_eight_one_a_day_are_nine(tmp_path: Path) -> None:
    times = [HOUR + second for second in range(8)] + [day * 24 * HOUR for day in range(1, 9)]
    (tmp_path / "log.csv").write_text("\n".join(["time", *map(str, times)]))
    options = {"gpus": 1, "begin": moment(0), "end": moment(386 * HOUR)}
    merged = read_log(tmp_path / "log.csv", **options)
    assert (merged.failures, merged.log and merged.log.found) == (9, 16)
    assert merged.mean_gpu_hours == pytest.approx((386 - 9 / 6) / 9)
    apart = read_log(tmp_path / "log.csv", **options, restart_minutes=0)
    assert apart.mean_gpu_hours == pytest.approx(386 / 16)
    assert next(merged.said()) == "16 failures in 384 GPU-hours; 7 within one restart of an earlier one, counted as one with it"  # fmt: skip


def test_failures_within_one_restart_of_the_first_count_as_one() -> None:
    counted = watched([1, 1.2, 2, 2.9, 9.8], 10).counted(HOUR)
    assert counted.failures == 3, "a long chain of failures is not one"
    assert counted.at_gpu_hours == pytest.approx([1, 2.9, 9.8])
    assert counted.found == 5
    assert counted.risk_gpu_hours == pytest.approx(10 - 1 - 1 - 0.2)


def test_merging_leaves_the_rate_of_failures_that_come_alone() -> None:
    hours = np.cumsum(np.random.default_rng(3).exponential(1, 40_000))
    counted = watched(hours.tolist(), hours[-1]).counted(HOUR / 2)
    assert counted.failures < 30_000
    assert counted.risk_gpu_hours / counted.failures == pytest.approx(1, rel=0.02)


def test_clusters_widen_the_interval_and_regular_failures_do_not_narrow_it() -> None:
    regular = watched(list(range(1, 41)), 41).counted(0)
    clustered = watched([n / 10 for n in range(1, 41)], 41).counted(0)
    assert overdispersion(regular) == 1
    assert overdispersion(clustered) == pytest.approx(40), "all in one of four windows"
    lo, hi = clustered_interval(regular)
    assert math.log(hi / lo) / 2 == pytest.approx(3.182 / math.sqrt(40), rel=1e-3)
    wide = clustered_interval(clustered)
    assert math.log(wide.hi / wide.lo) / math.log(hi / lo) == pytest.approx(math.sqrt(40))


@pytest.mark.parametrize("failures", [1, 3, 7])
def test_few_failures_have_the_interval_of_their_count(failures: int, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(
        "\n".join(["time", *(f"{12 * HOUR + 24 * HOUR * day}" for day in range(failures))])
    )
    log = read_log(path, gpus=256, begin=moment(0), end=moment(7 * 24 * HOUR), restart_minutes=0)
    assert log.seen == rate_of_count(failures, 7, 256).seen


def test_a_few_failures_in_one_cluster_have_a_wider_interval() -> None:
    log = watched([1, 1.1, 1.2, 1.3, 1.4], 100).counted(0)
    assert rates._counted(rate_of_count(1, 1, 1), 5, 100.0, log).seen == clustered_interval(log)


@pytest.mark.parametrize(
    ("failures", "quantile"), [(124, 3.182), (125, 2.776), (150, 2.571), (400, 2.571)]
)
def test_long_logs_have_more_windows(failures: int, quantile: float) -> None:
    lo, hi = clustered_interval(watched(list(range(1, failures + 1)), failures + 1).counted(0))
    widest = quantile * math.sqrt(1 / failures)
    assert math.log(hi / lo) / 2 == pytest.approx(widest, rel=1e-3)


@pytest.mark.parametrize(
    ("failures", "limits"),
    [(1, (0.0253178, 5.571643)), (10, (4.795389, 18.390356)), (419, (379.8395, 461.1154))],
)
def test_the_interval_of_a_count_is_garwoods(failures: int, limits: tuple[float, float]) -> None:
    lo, hi = exact_interval(failures, 100.0)
    assert (100 / hi, 100 / lo) == pytest.approx(limits, rel=2e-3)


def test_a_log_without_failures_gives_a_bound(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("time\n")
    rate = read_log(tmp_path / "log.csv", gpus=8, begin=moment(0), end=moment(30 * HOUR))  # fmt: skip
    assert (rate.is_bound, rate.mean_gpu_hours, rate.lo, rate.hi) == (True, 80, 80, math.inf)
    assert list(rate.said()) == [
        "0 failures in 240 GPU-hours",
        "no failure was seen: the rate is at most one per third of the time",
    ]


def test_a_plain_list_of_times_begins_with_its_first_failure_and_ends_with_its_last(
    tmp_path: Path,
) -> None:
    path = tmp_path / "times.txt"
    path.write_text("2026-01-05T03:00\n2026-01-05T01:00\n2026-01-05T07:00\n")
    rate = read_log(path, gpus=2, restart_minutes=0)
    assert (rate.failures, rate.mean_gpu_hours) == (2, 6)
    assert list(rate.said()) == [
        "2 failures in 12 GPU-hours",
        "only 2 failures: the true rate may be 0.12 to 3.6 times this (brackets: 95 %)",
    ]
    path.write_text("2026-01-05T03:00\n")
    with pytest.raises(
        DataError, match=r"how many GPUs were watched: give from, to, gpus in a YAML file"
    ):
        read_log(path)
    path.write_text("2026-01-05T03:00\n2026-01-06T03:00\n")
    with pytest.raises(
        DataError, match=r"a list of 2 failures does not .* watched: give gpus in a YAML"
    ):
        read_log(path)


@pytest.mark.parametrize("times", ["5000.1\n5100.3\n", "5000\n5000\n", "5000\n5200\n5590\n"])
def test_a_log_shorter_than_a_restart_gives_no_rate(tmp_path: Path, times: str) -> None:
    (tmp_path / "log.csv").write_text(times)
    with pytest.raises(DataError, match="all of its time is within one restart of a failure"):
        read_log(tmp_path / "log.csv", gpus=3)


def test_the_hour_that_autumn_repeats_is_read(tmp_path: Path) -> None:
    """Local times go back at its end, and a failure in either hour may have the same time."""
    path = tmp_path / "log.csv"
    path.write_text("time\n2026-10-25T02:50:00\n2026-10-25T02:10:00\n2026-10-25T02:50:00\n2026-10-26T02:00:00\n")  # fmt: skip
    ends = {"begin": moment("2026-10-01"), "end": moment("2026-11-01")}
    rate = read_log(path, gpus=1, **ends)
    assert rate.log is not None
    assert (rate.failures, rate.log.found) == (3, 4)


PAGE = (Path(__file__).resolve().parents[2] / "docs" / "failure-rates.md").read_text(
    encoding="utf-8"
)
PBS_RECORDS = [
    ("01/08/2026 03:12:44", "R", -20),
    ("01/14/2026 22:00:05", "E", 0),
    ("01/19/2026 16:05:30", "R", -11),
    ("01/24/2026 09:41:02", "R", -20),
    ("01/31/2026 09:44:10", "E", -29),
    ("02/05/2026 05:59:59", "R", -4),
    ("02/14/2026 08:30:00", "E", 271),
    ("02/20/2026 23:17:08", "R", -20),
    ("02/20/2026 23:19:51", "R", -20),
]
QACCT = """#!/bin/sh
cat <<END
==============================================================
qname        gpu.q
end_time     Thu Jan  8 03:12:44 2026
failed       100 : assumedly after job
==============================================================
end_time     Fri Jan  9 05:59:59 2026
failed       37  : qmaster enforced h_rt, h_cpu, or h_vmem limit
==============================================================
end_time     01/24/2026 09:41:02.123
failed       25  : rescheduling
==============================================================
end_time     Sun Jan 25 05:59:59 2026
failed       0
END
"""


def run_recipe(folder: Path, word: str) -> FailureRate:
    """Of the page, in a folder with such a scheduler's records."""
    (recipe,) = (each for each in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL) if word in each)
    variables = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-ec", recipe], cwd=folder, env=variables, check=True)
    own = folder / "own.yaml"
    own.write_text("title: ours\ncounts: nodes\nlog: failures.csv\ngpus: 32\nfrom: 2026-01-01\nto: 2026-03-02\n")  # fmt: skip
    return read_rate(own)


def test_the_pages_recipe_for_pbs_takes_requeues_after_a_lost_node_alone(tmp_path: Path) -> None:
    (tmp_path / "accounting").mkdir()
    lines = [f"{at};{kind};{number}.pbs1;user=ada Resource_List.ngpus=32 Exit_status={status} resources_used.ncpus=384 run_count=2" for number, (at, kind, status) in enumerate(PBS_RECORDS)]  # fmt: skip
    (tmp_path / "accounting" / "20260108").write_text("\n".join(lines) + "\n")
    rate = run_recipe(tmp_path, "accounting")
    assert rate.log is not None
    assert (rate.log.found, rate.failures) == (5, 4)
    assert rate.mean_hours(32) == pytest.approx(359.8, abs=0.05)


def test_the_pages_recipe_for_grid_engine_takes_lost_nodes_alone(tmp_path: Path) -> None:
    (tmp_path / "qacct").write_text(QACCT)
    (tmp_path / "qacct").chmod(0o755)
    assert run_recipe(tmp_path, "qacct").failures == 2
    assert (tmp_path / "failures.csv").read_text().splitlines() == ["2026-01-08T03:12:44", "2026-01-24T09:41:02"]  # fmt: skip

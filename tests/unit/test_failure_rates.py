"""Failure rates from files: what is read, what is computed from it, and every wrong file refused in one line."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import yaml

from ckptbench.common.errors import ConfigError, DataError
from ckptbench.decide import RATE_FACTORS, sampling
from ckptbench.decide.exposure import ENDS
from ckptbench.decide.rates import ELSEWHERE, rate_of_job, read_rate, read_rates
from ckptbench.decide.sacct import ASK

ROOT = Path(__file__).resolve().parents[2]
FAILURES = ROOT / "config" / "failures"
EXAMPLE = FAILURES / "example" / "log.yaml"
SHIPPED = {rate.name: rate for rate in read_rates(FAILURES)}

ABOUT = {"title": "Ours", "counts": "lost nodes"}
OWN = {**ABOUT, "mean_gpu_hours": 20000}
COUNTED = {**ABOUT, "failures": 4, "days": 30, "gpus": 64}
LOG = {**ABOUT, "log": "log.csv", "gpus": 8, "from": 0, "to": 7200}
TIMES = "time,node\n600,a\n1800,b\n5400,a\n"


def written(folder: Path, content: object, times: str | None = None) -> Path:
    path = folder / "ours.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    if times is not None:
        (folder / "log.csv").write_text(times)
    return path


def refusal(folder: Path, content: object, times: str | None = None) -> str:
    """The one line that refuses the file, without the path of the folder."""
    with pytest.raises((ConfigError, DataError)) as caught:
        read_rate(written(folder, content, times))
    line = str(caught.value)
    assert "\n" not in line
    return line.replace(f"{folder}/", "")


def test_llama_3_lost_a_training_every_50_700_gpu_hours() -> None:
    rate = SHIPPED["llama3"]
    assert (
        rate.mean_gpu_hours
        == pytest.approx(54 * 24 * 16384 / 419)
        == pytest.approx(50_700, rel=1e-3)
    )
    assert rate.failures == 419
    assert rate.mean_hours(16384) == pytest.approx(3.09, abs=0.01)
    assert rate.seen == pytest.approx((46_049, 55_902), abs=1)


def test_node_failures_of_a_cluster_give_its_projections() -> None:
    """Of 6.50 and 2.34 failures in 1,000 days of nodes of 8 GPUs."""
    rsc_1, rsc_2 = SHIPPED["kokolis-rsc-1"], SHIPPED["kokolis-rsc-2"]
    assert rsc_1.mean_gpu_hours == pytest.approx(8 * 24 * 1000 / 6.50, abs=1)
    assert rsc_2.mean_gpu_hours == pytest.approx(8 * 24 * 1000 / 2.34, abs=1)
    assert rsc_1.mean_hours(16384) == pytest.approx(1.8, abs=0.05)
    assert rsc_1.mean_hours(131072) == pytest.approx(0.23, abs=0.005)


def test_jobs_of_8_and_of_1024_gpus_fail_in_proportion() -> None:
    """The same source has a mean of 47.7 days for 8 GPUs."""
    assert 47.7 * 24 * 8 / SHIPPED["kokolis-1k"].mean_gpu_hours == pytest.approx(1.13, abs=0.005)


def test_published_rates_of_jobs_say_how_far_others_are_off() -> None:
    names = ("llama3", "opt-175b", "kokolis-1k", "kokolis-rsc-1", "kokolis-rsc-2")
    logs = [math.log(SHIPPED[name].mean_gpu_hours) for name in names]
    assert np.std(logs, ddof=1) == pytest.approx(ELSEWHERE, abs=0.005)
    assert RATE_FACTORS == (1 / 3, 3)
    assert round(math.exp(1.96 * ELSEWHERE)) == 6
    for rate in SHIPPED.values():
        assert math.log(rate.hi / rate.lo) / 2 / 1.96 >= 0.9399
        assert list(rate.said()) == [
            "measured elsewhere: your rate may be a sixth of it or six times as high"
        ]


def test_a_number_of_failures_that_the_source_estimates_has_an_interval() -> None:
    rate = SHIPPED["opt-175b"]
    assert rate.mean_gpu_hours == pytest.approx(992 * 60 * 24 / 105)
    assert rate.seen == pytest.approx((11_238, 16_634), abs=1)


def test_the_rate_of_a_job_is_what_the_user_says() -> None:
    rate = rate_of_job(14 * 3600, 256)
    assert (rate.mean_gpu_hours, rate.mean_hours(512)) == (14 * 256, 7)
    assert list(rate.said()) == []
    assert set(sampling.failures_per_s(rate, 256)) == {1 / (14 * 3600)}


def test_a_published_rate_is_found_by_its_name() -> None:
    assert read_rate("llama3").mean_gpu_hours == SHIPPED["llama3"].mean_gpu_hours
    with pytest.raises(
        ConfigError, match=r"rate is 'lama': use a file NAME.yaml or one of .*, llama3, "
    ):
        read_rate("lama")


def test_a_log_is_no_file_of_a_rate_and_a_folder_hides_no_published_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "llama3").mkdir()
    assert read_rate("llama3").mean_gpu_hours == SHIPPED["llama3"].mean_gpu_hours
    Path("llama3.csv").write_text("time\n0\n9000\n")
    with pytest.raises(ConfigError, match=r"'llama3.csv': use a file NAME.yaml or .*; a log goes to --log"):  # fmt: skip
        read_rate("llama3.csv")


def test_every_shipped_rate_says_where_it_is_from() -> None:
    assert len(SHIPPED) >= 8
    for path in FAILURES.glob("*.yaml"):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert content["source"]["reference"].startswith("arXiv:")
        assert content["read_in"]
        assert content["source"]["reference"] in SHIPPED[path.stem].source


def test_a_rate_of_ones_own(tmp_path: Path) -> None:
    rate = read_rate(written(tmp_path, OWN))
    assert (rate.name, rate.source, rate.mean_gpu_hours) == ("ours", "own", 20000)
    assert rate.mean_hours(100) == 200
    assert rate.file.gpus is None


def test_counted_failures_have_the_exact_interval(tmp_path: Path) -> None:
    rate = read_rate(written(tmp_path, COUNTED))
    exposure = 30 * 24 * 64
    # Garwood's limits for a count of 4 are 1.0899 and 10.2416.
    assert rate.lo == pytest.approx(exposure / 10.2416, rel=1e-4)
    assert rate.hi == pytest.approx(exposure / 1.0899, rel=1e-4)
    assert rate.mean_gpu_hours == exposure / 4


@pytest.mark.parametrize(
    ("begin", "end", "times"),
    [
        (0, 7200, ["600", "1800", "5.4e3"]),
        ("2026-01-05T00:00:00Z", "2026-01-05T02:00:00Z", ["2026-01-05T00:10:00Z", "2026-01-05T01:30:00+01:00", "2026-01-05T01:30:00Z"]),
        ("2026-01-05", "2026-01-05 02:00:00", ["2026-01-05 00:10", "2026-01-05T00:30:00", "20260105T0130"]),
    ],
    ids=["seconds", "zoned", "local"],
)  # fmt: skip
def test_times_are_seconds_or_dates(
    tmp_path: Path, begin: object, end: object, times: list[str]
) -> None:
    text = f"title: Ours\ncounts: all\nlog: log.csv\ngpus: 8\nfrom: {begin}\nto: {end}\n"
    rate = read_rate(written(tmp_path, text, "\n".join(["# a note", "", "time", *times])))
    assert rate.log is not None
    assert rate.log.at_gpu_hours * 60 / 8 == pytest.approx([10, 30, 90])
    assert rate.log.watched_gpu_hours * 60 / 8 == pytest.approx(120)
    assert rate.mean_gpu_hours == pytest.approx(8 * 1.5 / 3), (
        "ten minutes after each are not at risk"
    )
    assert rate.failures == 3


def test_the_column_of_the_times_can_be_named(tmp_path: Path) -> None:
    rate = read_rate(written(tmp_path, {**LOG, "column": "at"}, "node,at\na,600\nb,1800\n"))
    assert rate.failures == 2


def test_the_restart_of_a_log_can_be_given(tmp_path: Path) -> None:
    assert read_rate(written(tmp_path, {**LOG, "restart_minutes": 0}, TIMES)).mean_gpu_hours == pytest.approx(16 / 3)  # fmt: skip
    assert read_rate(written(tmp_path, {**LOG, "restart_minutes": 30}, TIMES)).failures == 2


def test_a_log_that_ends_now_is_watched_until_now(tmp_path: Path) -> None:
    for begin, now in (("2026-01-05", datetime.now()), ("2026-01-05T00:00:00Z", datetime.now(UTC))):
        text = f"title: Ours\ncounts: all\nlog: log.csv\ngpus: 1\nfrom: {begin}\nto: now\nrestart_minutes: 0\n"
        rate = read_rate(written(tmp_path, text, f"time\n{begin.replace('05', '06')}\n"))
        hours = (now - datetime.fromisoformat(begin)).total_seconds() / 3600
        assert rate.mean_gpu_hours == pytest.approx(hours, rel=1e-3)
    mixed = refusal(tmp_path, {**LOG, "to": "now"}, TIMES)
    assert mixed.startswith("log.csv: it lasts more than 50 years: write all times in the same way")


def test_the_example_log_gives_the_mean_that_it_was_drawn_from() -> None:
    rate = read_rate(EXAMPLE)
    assert rate.lo < 16 * 512 < rate.hi
    assert (rate.failures, rate.log and rate.log.found) == (60, 62)
    assert "seed 12" in rate.file.counts
    assert rate.name not in SHIPPED, "no answer is computed from made-up failures"


def test_no_failure_gives_a_bound(tmp_path: Path) -> None:
    rate = read_rate(written(tmp_path, {**COUNTED, "failures": 0}))
    assert (rate.mean_gpu_hours, rate.hi, rate.is_bound) == (30 * 24 * 64 / 3, math.inf, True)
    assert set(sampling.failures_per_s(rate, 64)) == {1 / (30 * 24 * 3600 / 3)}


def test_no_failure_that_was_published_is_a_bound_too(tmp_path: Path) -> None:
    content = yaml.safe_load((FAILURES / "llama3.yaml").read_text(encoding="utf-8"))
    rate = read_rate(written(tmp_path, {**content, "failures": 0}))
    assert (rate.lo, rate.hi) == (rate.mean_gpu_hours, math.inf)


@pytest.mark.parametrize("name", ["llama3", "kokolis-1k", "example", "few"])
def test_draws_differ_as_much_as_the_interval_says(name: str, tmp_path: Path) -> None:
    few = read_rate(written(tmp_path, COUNTED))
    rate = {**SHIPPED, "example": read_rate(EXAMPLE), "few": few}[name]
    best, *draws = 1 / sampling.failures_per_s(rate, 1) / 3600
    assert best == pytest.approx(rate.mean_gpu_hours)
    assert np.quantile(draws, [0.025, 0.5, 0.975]) == pytest.approx(
        [rate.lo, rate.mean_gpu_hours, rate.hi], rel=0.05
    )


BAD_FILES = [
    ({**OWN, "mean_gpu_hour": 3}, "ours.yaml: mean_gpu_hour is 3: there is no such field; did you mean mean_gpu_hours? config/README.md lists them all"),
    ({**OWN, "mean_gpu_hours": 0}, "ours.yaml: mean_gpu_hours is 0: it should be greater than 0"),
    ({**COUNTED, "gpus": 1.5}, "ours.yaml: gpus is 1.5: it should be a valid integer"),
    ({**OWN, "source": {"authors": "A", "year": 2024, "title": "T", "reference": "2407.21783"}}, "ours.yaml: source.reference is '2407.21783': use a text as in \"arXiv:2407.21783\", \"doi:10.1109/...\" or \"https://...\""),
    (ABOUT, "ours.yaml: the rate is set by nothing: give failures, days and gpus; or mean_hours and gpus; or mean_gpu_hours; or log"),
    ({**COUNTED, "mean_gpu_hours": 3}, "ours.yaml: the rate is set by days, failures, gpus, mean_gpu_hours: give failures, days and gpus; or mean_hours and gpus; or mean_gpu_hours; or log"),
    ({**ABOUT, "mean_hours": 3}, "ours.yaml: the rate is set by mean_hours: give failures, days and gpus; or mean_hours and gpus; or mean_gpu_hours; or log"),
    ({**LOG, "states": []}, "ours.yaml: states is []: give at least one value"),
    ({**LOG, "states": ["NODEFAIL"]}, f"ours.yaml: states[0] is 'NODEFAIL': it should be {', '.join(map(repr, ENDS[:-1]))} or {ENDS[-1]!r}"),
    ({**LOG, "from": "yesterday"}, "ours.yaml: from is 'yesterday': use a number of seconds, or a time as in \"2026-01-31T08:00:00Z\""),
    ({**LOG, "from": "2026-01-05"}, "ours.yaml: to is 7200: it must come after `from`"),
    ({**LOG, "to": 0}, "ours.yaml: to is 0: it must come after `from`"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "line"), BAD_FILES, ids=[line[11:50] for _, line in BAD_FILES])
def test_a_bad_file_is_refused_in_one_line(tmp_path: Path, content: object, line: str) -> None:
    assert refusal(tmp_path, content) == line


SPAN = "it is not between `from` and `to`: remove the line, or correct them"
BAD_LOGS = [
    ("", "log.csv: it is empty: begin it with a line of names"),
    ("at,node\n600,a\n", f"log.csv: line 1: there is no column 'time' among 'at', 'node': begin the file with a line of names, of which one is time, or what `column` in a YAML file says; for jobs of Slurm, take the output of {ASK}"),
    ("time\n600\nsoon\n", "log.csv: line 3: time is 'soon': use a number of seconds, or a time as in \"2026-01-31T08:00:00Z\""),
    ("time\n600\nnan\n", "log.csv: line 3: time is 'nan': use a number of seconds, or a time as in \"2026-01-31T08:00:00Z\""),
    ("time\n600\n1772323200000\n", "log.csv: line 3: time is '1772323200000': use a number of seconds, or a time as in \"2026-01-31T08:00:00Z\""),
    ("node,time\na,600\nb,\n", "log.csv: line 3: time is '': use a number of seconds, or a time as in \"2026-01-31T08:00:00Z\""),
    ("time\n0\n", f"log.csv: line 2: time is '0': {SPAN}"),
    ("time\n600\n7201\n", f"log.csv: line 3: time is '7201': {SPAN}"),
]  # fmt: skip


@pytest.mark.parametrize(("times", "line"), BAD_LOGS, ids=[line[9:60] for _, line in BAD_LOGS])
def test_a_bad_log_is_refused_in_one_line(tmp_path: Path, times: str, line: str) -> None:
    assert refusal(tmp_path, LOG, times) == line


def test_a_few_wrong_times_in_a_long_list_are_shown_and_do_not_count(tmp_path: Path) -> None:
    times = "\n".join(["time", *(str(300 * n) for n in range(1, 21)), "7201", "soon"])
    rate = read_rate(written(tmp_path, {**LOG, "restart_minutes": 0}, times))
    assert (rate.failures, rate.log and rate.log.found) == (20, 20)
    assert f"2 of 22 rows cannot be read and do not count; the first is line 22: time is '7201': {SPAN}" in rate.said()  # fmt: skip


def test_a_missing_log_is_named_with_its_folder(tmp_path: Path) -> None:
    line = refusal(tmp_path, LOG)
    assert (
        line == "log.csv: cannot be read: No such file or directory; "
        "correct `log`, which is a path from the folder of its YAML file"
    )


def test_a_log_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, LOG)
    (tmp_path / "log.csv").write_bytes(b"time\n\xff\n")
    with pytest.raises(DataError, match=r"log\.csv: cannot be read as CSV in UTF-8"):
        read_rate(path)


def test_a_folder_without_rates_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"it has no file \*\.yaml: name a folder like"):
        read_rates(tmp_path)


def test_the_rates_that_the_docs_convert_are_right(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "failure-rates.md").read_text(encoding="utf-8")
    section = text.partition("## Percents, chances and nodes")[2].partition("## Intervals")[0]
    rows = re.findall(r"^\| (.*) \| ([\d .*/()ln-]+) \| ([\d,]+) \|$", section, re.MULTILINE)
    assert len(rows) == 2
    for known, formula, number in rows:
        hours = eval(formula, {"ln": math.log, "__builtins__": {}})
        rate = read_rate(written(tmp_path, {**ABOUT, "mean_gpu_hours": hours}))
        assert f"{rate.mean_gpu_hours:,.0f}" == number, known


def test_a_chance_is_the_rate_of_the_failures_that_it_comes_from() -> None:
    """Of GPUs that fail at the rate of the docs, in a day or a month so many have failed at least once."""
    for hours, gpus, mean, chance in ((24, 1, 23_988, 0.001), (730.5, 8, 113_933, 0.05)):
        assert 1 - math.exp(-hours * gpus / mean) == pytest.approx(chance, rel=1e-4)


def test_counted_nodes_are_given_by_their_gpus(tmp_path: Path) -> None:
    counted = {**ABOUT, "failures": 5, "days": 30.44, "gpus": 800}
    rate = read_rate(written(tmp_path, counted))
    assert rate.mean_gpu_hours == pytest.approx(30.44 * 24 * 800 / 5)
    assert rate.lo < 113_933 < rate.hi

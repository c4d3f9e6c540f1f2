"""Jobs as sacct prints them: which are failures, and the GPU-hours of all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ckptbench.common.errors import DataError
from ckptbench.decide.clock import seconds_of as moment
from ckptbench.decide.exposure import FAILURE_STATES
from ckptbench.decide.rates import FailureRate, read_log, read_rate
from ckptbench.decide.sacct import ASK, COLUMNS
from ckptbench.decide.sampling import failures_per_s

HEAD = f"{COLUMNS},NodeList".replace(",", "|")
JOBS = """
1|COMPLETED|2026-01-05T00:00:00|2026-01-06T00:00:00|1-00:00:00|billing=8,cpu=64,gres/gpu=8,node=1|gpu01
1.batch|COMPLETED|2026-01-05T00:00:00|2026-01-06T00:00:00|1-00:00:00|cpu=64,gres/gpu=8,node=1|gpu01
2|NODE_FAIL|2026-01-06T00:00:00|2026-01-06T12:00:00|12:00:00|gres/gpu:a100=16,node=2|gpu[01-02]
3|CANCELLED by 1000|2026-01-06T00:00:00|2026-01-06T12:30:00|12:30:00|gres/gpu:a100=8,gres/gpu=8|gpu03
4|RUNNING|2026-01-07T00:00:00|Unknown|1-00:00:00|gres/gpu=8|gpu03

5|FAILED|2026-01-07T00:00:00|2026-01-07T06:00:00|06:00:00|gres/gpu=8|gpu02
6|PENDING|Unknown|Unknown|00:00:00||None assigned
7|FAILED|2026-01-07T00:00:00|2026-01-07T05:00:00|05:00:00|cpu=4|cpu02
8|PREEMPTED|2026-01-07T00:00:00|2026-01-07T01:00:00|01:00:00|gres/gpu=8|gpu02
9|BOOT_FAIL|2026-01-07T09:00:00|2026-01-07T09:00:00|00:00:00|gres/gpu=8|gpu01
"""
HOURS = 8 * 24 + 16 * 12 + 8 * 12.5 + 8 * 24 + 8 * 6 + 8 * 1


def read(folder: Path, text: str, **options: object) -> FailureRate:
    (folder / "jobs.txt").write_text(text)
    return read_log(folder / "jobs.txt", **options)


def table(*lines: str) -> str:
    return "\n".join([HEAD, *lines])


def words(folder: Path, text: str, **options: object) -> list[str]:
    with pytest.raises(DataError) as caught:
        read(folder, text, **options)
    return str(caught.value).replace(f"{folder}/", "").splitlines()


@pytest.mark.parametrize("end", ["", "|"], ids=["parsable2", "parsable"])
def test_failures_are_jobs_that_failed_and_every_job_is_time_at_risk(
    tmp_path: Path, end: str
) -> None:
    lines = [line + end for line in (HEAD + JOBS).splitlines() if line]
    rate = read(tmp_path, "\n".join(lines), restart_minutes=0)
    assert rate.log is not None
    assert rate.log.risk_gpu_hours == pytest.approx(HOURS)
    assert rate.failures == 3, "NODE_FAIL, FAILED with GPUs, BOOT_FAIL"
    assert rate.mean_gpu_hours == pytest.approx(HOURS / 3)


def test_preempted_jobs_are_failures_where_the_user_says_so(tmp_path: Path) -> None:
    assert read(tmp_path, HEAD + JOBS, states=("NODE_FAIL", "PREEMPTED")).failures == 2


def test_a_name_with_a_quote_is_no_quoted_cell(tmp_path: Path) -> None:
    text = f'{HEAD}|JobName\n1|FAILED|2026-01-05|2026-01-06|24:00:00|gres/gpu=8|a|"5\n2|FAILED|2026-01-05|2026-01-07|48:00:00|gres/gpu=8|a|"6\n'
    assert read(tmp_path, text).failures == 2


def test_a_table_with_commas_is_read_by_its_header_too(tmp_path: Path) -> None:
    lines = [line.split("|") for line in (HEAD + JOBS).splitlines() if line]
    text = "\n".join(",".join(f'"{cell}"' for cell in line) for line in lines)
    assert read(tmp_path, text, restart_minutes=0).mean_gpu_hours == pytest.approx(HOURS / 3)


def test_of_seven_jobs_in_386_hours_two_failed(tmp_path: Path) -> None:
    """A list of times would count all seven: one in 55 hours."""
    states = ["COMPLETED", "NODE_FAIL", "CANCELLED by 7", "TIMEOUT", "COMPLETED", "FAILED", "OUT_OF_MEMORY"]  # fmt: skip
    rows = [f"{day},{state},2026-01-{day + 2:02}T12:00:00" for day, state in enumerate(states)]
    (tmp_path / "jobs.csv").write_text("\n".join(["JobID,State,End", *rows]))
    (tmp_path / "ours.yaml").write_text(
        "title: Ours\ncounts: failed jobs\nlog: jobs.csv\ncolumn: End\ngpus: 512\n"
        "from: 2026-01-01T00:00:00\nto: 2026-01-17T02:00:00\nrestart_minutes: 0\n"
    )
    rate = read_rate(tmp_path / "ours.yaml")
    assert rate.failures == 2
    assert rate.mean_hours(512) == pytest.approx(193)


def test_jobs_are_read_from_then_to_then(tmp_path: Path) -> None:
    options = {"begin": moment("2026-01-06T06:00:00"), "end": moment("2026-01-07T00:00:00")}
    rate = read(tmp_path, HEAD + JOBS, restart_minutes=0, **options)
    assert (rate.failures, rate.mean_gpu_hours) == (1, pytest.approx(16 * 6 + 8 * 6.5))


def test_a_run_of_a_job_that_is_there_twice_counts_once_and_a_requeued_one_twice(
    tmp_path: Path,
) -> None:
    text = table(
        "4|RUNNING|2026-01-07T00:00:00|Unknown|05:00:00|gres/gpu=8|a",
        "4|NODE_FAIL|2026-01-07T00:00:00|2026-01-07T09:00:00|09:00:00|gres/gpu=8|a",
        "4|NODE_FAIL|2026-01-07T00:00:00|2026-01-07T09:00:00|09:00:00|gres/gpu=8|a",
        "4|NODE_FAIL|2026-01-07T10:00:00|2026-01-07T11:00:00|01:00:00|gres/gpu=8|a",
    )
    rate = read(tmp_path, text, restart_minutes=0)
    assert (rate.failures, rate.mean_gpu_hours) == (2, 8 * (9 + 1) / 2)


def test_the_hour_that_autumn_repeats_is_in_elapsed(tmp_path: Path) -> None:
    text = table("1|FAILED|2026-10-25T02:50:00|2026-10-25T02:10:00|00:20:00|gres/gpu=6|a")
    assert read(tmp_path, text).mean_gpu_hours == pytest.approx(2)


def test_times_with_a_zone_are_read(tmp_path: Path) -> None:
    text = table("1|FAILED|2026-10-25T02:50:00+0200|2026-10-25T02:10:00+0100|00:20:00|gres/gpu=6|a")
    begin = moment("2026-10-25T00:00:00Z")
    assert read(tmp_path, text, begin=begin).mean_gpu_hours == pytest.approx(2)


def test_jobs_that_never_failed_give_a_bound(tmp_path: Path) -> None:
    rate = read(tmp_path, table("1|COMPLETED|2026-01-05|2026-01-06|24:00:00|gres/gpu=8|a"))
    assert (rate.is_bound, rate.mean_gpu_hours) == (True, 64)


def test_failures_of_a_switch_at_one_time_are_one(tmp_path: Path) -> None:
    rows = [
        f"{n}|NODE_FAIL|2026-01-05T00:00:00|2026-01-06T00:0{n}:00|1-00:0{n}:00|gres/gpu=8|gpu0{n}"
        for n in range(5)
    ]
    rate = read(tmp_path, table(*rows))
    assert rate.log is not None
    assert (rate.failures, rate.log.found) == (1, 5)


FAULTY = table(
    "1||2026-01-05T00:00:00|2026-01-06T00:00:00|1-00:00:00|gres/gpu=8|a",
    "2|FAILED|2026-01-05T00:00:00|Unknown|1-00:00:00|gres/gpu=8|a",
    "3|FAILED|2026-01-05T00:00:00|1/6/2026 10:00|1-00:00:00|gres/gpu=8|a",
    "4|COMPLETED|2026-01-05T00:00:00|2026-01-06T00:00:00|a day|gres/gpu=8|a",
    "5|COMPLETED|2026-01-05T00:00:00|2026-01-06T00:00:00||gres/gpu=8|a",
    "6|COMPLETED|2026-01-05T00:00:00|2026-01-06T00:00:00|24:00:00|gres/gpu=many|a",
    "7|COMPLETED|2026-01-05T00:00:00",
    "8|FAILED|2026-01-05T00:00:00|2026-01-06T00:00:00|24:00:00|gres/gpu=8|a|name with | in it",
)


@pytest.mark.parametrize(
    ("number", "fault"),
    [
        (1, "State is '': use a state of Slurm, as COMPLETED, or remove the line"),
        (2, "End is 'Unknown': but it has failed: say when, or remove the line"),
        (3, "End is '1/6/2026 10:00': use a number of seconds, or a time as in \"2026-01-31T08:00:00Z\""),
        (4, "Elapsed is 'a day': use days-hours:minutes:seconds, as in 1-02:30:00, or remove the line"),
        (5, "Elapsed is '': use days-hours:minutes:seconds, as in 1-02:30:00, or remove the line"),
        (6, "AllocTRES is 'gres/gpu=many': use a number of GPUs, as in gres/gpu=8"),
        (7, "it has 3 columns for 7 names: complete it, or leave out a column in which a cell holds a separator"),
        (8, "it has 9 columns for 7 names: complete it, or leave out a column in which a cell holds a separator"),
    ],
)  # fmt: skip
def test_a_wrong_line_of_a_table_is_named(tmp_path: Path, number: int, fault: str) -> None:
    head, *rows = FAULTY.splitlines()
    right = "9|COMPLETED|2026-01-05T00:00:00|2026-01-06T00:00:00|24:00:00|gres/gpu=8|a"
    lines = [head, right, rows[number - 1]]
    assert words(tmp_path, "\n".join(lines)) == [f"jobs.txt: line 3: {fault}"]


def test_a_few_unreadable_rows_are_counted_and_the_first_is_shown(tmp_path: Path) -> None:
    """Those of steps are none: they do not count anyway."""
    head, *faulty = FAULTY.splitlines()
    right = [f"{n}|NODE_FAIL|2026-01-05T00:00:00|2026-01-0{n}T00:00:00|1-00:00:00|gres/gpu=8|a" for n in range(6, 10)] * 20  # fmt: skip
    rate = read(tmp_path, "\n".join([head, *right, *faulty, faulty[0].replace("1|", "1.0|", 1)]), restart_minutes=0)  # fmt: skip
    (told,) = (words for words in rate.said() if "cannot be read" in words)
    assert told == "8 of 88 rows cannot be read and do not count; the first is line 82: State is '': use a state of Slurm, as COMPLETED, or remove the line"  # fmt: skip
    assert (rate.failures, rate.mean_gpu_hours) == (4, 8 * 24)
    (line,) = words(tmp_path, "\n".join([head, *right[:71], *faulty]))
    assert line == "jobs.txt: line 73: State is '': use a state of Slurm, as COMPLETED, or remove the line (8 of 79 rows cannot be read)"  # fmt: skip


def test_columns_over_a_line_of_dashes_are_read(tmp_path: Path) -> None:
    """As sacct prints them without --parsable2; a cell may have blanks, and steps stand between jobs."""
    widths = (12, 20, 19, 19, 12, 40, 12)
    lines = [line.split("|") for line in (HEAD + JOBS).splitlines() if line]
    lines.insert(1, ["-" * width for width in widths])
    text = "\n".join(" ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)  # fmt: skip
    rate = read(tmp_path, text, restart_minutes=0)
    assert (rate.failures, rate.mean_gpu_hours) == (3, pytest.approx(HOURS / 3))
    assert not any("cannot be read" in words for words in rate.said())


def test_a_table_without_the_columns_says_how_to_ask_for_them(tmp_path: Path) -> None:
    (line,) = words(tmp_path, "JobID|JobName|Partition|Account|AllocCPUS|State|ExitCode\n1|a|b|c|4|FAILED|0:0\n")  # fmt: skip
    assert line == f"jobs.txt: line 1: there is no column End and no column Elapsed and no column AllocTRES: ask for them by {ASK}, or give gpus, from and to in a YAML file, as config/failures/example has"  # fmt: skip
    assert re.search(
        r"--format=JobID,State,Start,End,Elapsed,AllocTRES \(without --allusers, only your own jobs\)$",
        ASK,
    )


def test_jobs_without_gpus_are_refused(tmp_path: Path) -> None:
    text = table("1|FAILED|2026-01-05|2026-01-06|24:00:00|cpu=8|a")
    (line,) = words(tmp_path, text)
    assert line == "jobs.txt: no job had a GPU (AllocTRES would show gres/gpu=8): where Slurm counts no GPUs, leave this column out, and give gpus, from and to in a YAML file"  # fmt: skip
    span = {"gpus": 8, "begin": moment("2026-01-01"), "end": moment("2026-02-01")}
    assert words(tmp_path, text, **span) == [line], "it is no log without failures"
    assert read(tmp_path, table(), **span).is_bound


def test_a_requeued_job_counts_twice_without_its_start_too(tmp_path: Path) -> None:
    text = "JobID|State|End|Elapsed|AllocTRES\n4|NODE_FAIL|2026-01-07T09:00:00|09:00:00|gres/gpu=8\n4|COMPLETED|2026-01-08T09:00:00|10:00:00|gres/gpu=8\n"
    rate = read(tmp_path, text, restart_minutes=0)
    assert (rate.failures, rate.mean_gpu_hours) == (1, 8 * (9 + 10))


def test_raw_columns_say_the_same(tmp_path: Path) -> None:
    row = "FAILED|2026-01-05T00:00:00|2026-01-06T00:00:00|86400|gres/gpu=8"
    text = f"JobIDRaw|State|Start|End|ElapsedRaw|AllocTRES\n7|{row}\n7.0|{row}\n"
    rate = read(tmp_path, text)
    assert (rate.failures, rate.mean_gpu_hours) == (1, 8 * 24)


def test_a_running_job_without_its_start_is_no_lost_time(tmp_path: Path) -> None:
    text = "JobID|State|End|Elapsed|AllocTRES\n1|RUNNING|Unknown|20-00:00:00|gres/gpu=8\n2|PENDING|Unknown|00:00:00|\n"
    (line,) = words(tmp_path, text)
    assert line == "jobs.txt: line 2: End is 'Unknown': but it ran: ask for Start too, or remove the line"  # fmt: skip


@pytest.mark.parametrize("at", ["2026-01-05T00:00:00", "2026-01-06T01:00:00"])
def test_a_job_that_failed_at_once_counts_whenever_it_came(tmp_path: Path, at: str) -> None:
    whole = "1|COMPLETED|2026-01-05T00:00:00|2026-01-06T00:00:00|24:00:00|gres/gpu=8|a"
    text = table(whole, f"2|BOOT_FAIL|{at}|{at}|00:00:00|gres/gpu=8|a")
    rate = read(tmp_path, text, restart_minutes=0)
    assert (rate.failures, rate.mean_gpu_hours) == (1, 8 * 24)


@pytest.mark.parametrize("state", ["NODE FAIL", "NF", "node_fail"])
def test_a_state_in_other_words_is_no_success(tmp_path: Path, state: str) -> None:
    (line,) = words(tmp_path, table(f"1|{state}|2026-01-05|2026-01-06|24:00:00|gres/gpu=8|a"))
    assert f"State is '{state}': use a state of Slurm" in line


def test_tables_that_were_joined_have_their_names_twice(tmp_path: Path) -> None:
    row = "|COMPLETED|2026-01-05|2026-01-06|24:00:00|gres/gpu=8|a"
    assert read(tmp_path, table(f"1{row}", HEAD, f"2{row}")).mean_gpu_hours == 8 * 48 / 3


def test_memory_of_gpus_is_no_gpu(tmp_path: Path) -> None:
    row = "|COMPLETED|2026-01-05|2026-01-06|24:00:00|"
    text = table(f"1{row}gres/gpu=8|a", f"2{row}cpu=8,gres/gpumem=0,gres/gpuutil=0|a")
    assert read(tmp_path, text).mean_gpu_hours == 64


def test_a_time_in_which_no_job_ran_gives_no_rate(tmp_path: Path) -> None:
    (line,) = words(tmp_path, HEAD + JOBS, begin=moment("2027-01-01"))
    assert line == "jobs.txt: it gives no rate, as no GPU was watched from `from` to `to`: correct them"  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "1|COMPLETED|2026-01-05|2026-01-06|24:00:00|gres/gpu=8|a|b|c\n",
        "JobID  State  Elapsed\n1 FAILED 24:00:00\n",
        '{"jobs": [' + ", ".join(['{"job_id": 1, "state": "FAILED"}'] * 900),
    ],
    ids=["no names", "in columns", "JSON"],
)
def test_what_is_no_table_of_sacct_says_in_a_short_line_how_to_ask_for_one(
    tmp_path: Path, text: str
) -> None:
    (line,) = words(tmp_path, text)
    assert line.endswith(ASK)
    assert len(line) < 800


def test_a_table_of_failed_jobs_alone_says_that_the_others_are_missing(tmp_path: Path) -> None:
    row = "|2026-01-05|2026-01-06|24:00:00|gres/gpu=8|a"
    told = "every job of the table failed: if other jobs ran, add them, as failures are then rarer"  # fmt: skip
    assert told in list(read(tmp_path, table(f"1|NODE_FAIL{row}")).said())
    assert told not in list(read(tmp_path, table(f"1|NODE_FAIL{row}", f"2|TIMEOUT{row}")).said())


ENDED = [f"{day}|COMPLETED|2026-06-{day:02}T00:00:00|2026-06-{day + 7:02}T00:00:00|7-00:00:00|gres/gpu=8|a" for day in (1, 8, 15)]  # fmt: skip
FAILED = "4|NODE_FAIL|2026-06-08T00:00:00|2026-06-12T00:00:00|4-00:00:00|gres/gpu=8|b"


@pytest.mark.parametrize(
    ("running", "named"),
    [
        ("90|RUNNING|2025-01-01T00:00:00|Unknown|541-00:00:00|gres/gpu=512|c", True),
        ("91|RUNNING|2026-06-12T00:00:00|Unknown|10-00:00:00|gres/gpu=8|c", True),
        ("92|RUNNING|2026-06-20T00:00:00|Unknown|6-00:00:00|gres/gpu=8|c", False),
    ],
)
def test_a_job_that_runs_longer_than_any_that_ended_is_named_and_no_time_at_risk(
    running: str, named: bool, tmp_path: Path
) -> None:
    rate = read(tmp_path, table(*ENDED, FAILED, running), restart_minutes=0)
    assert rate.mean_gpu_hours == 8 * 24 * (21 + 4 + (0 if named else 6))
    told = [line for line in rate.said() if "RUNNING" in line]
    assert [line.startswith(f"1 job ({running[:2]}) still RUNNING longer") for line in told] == [True] * named  # fmt: skip
    assert all("sacctmgr show runawayjobs" in line for line in told)


def test_jobs_that_all_still_run_are_believed(tmp_path: Path) -> None:
    running = "92|RUNNING|2026-06-20T00:00:00|Unknown|6-00:00:00|gres/gpu=8|c"
    rate = read(tmp_path, table(running), begin=moment("2026-06-25"))
    assert (rate.is_bound, rate.log and rate.log.doubts) == (True, ())
    assert rate.mean_gpu_hours == 8 * 24 / 3


def test_a_job_that_runs_since_long_before_the_others_is_named(tmp_path: Path) -> None:
    long = "9|COMPLETED|2026-04-01T00:00:00|2026-06-10T00:00:00|70-00:00:00|gres/gpu=8|a"
    old = "90|RUNNING|2026-05-01T00:00:00|Unknown|50-00:00:00|gres/gpu=8|c"
    told = [*read(tmp_path, table(long, FAILED, old)).said()]
    assert any("1 job (90) still RUNNING longer than any ended job (70 days), or since long before them" in line for line in told)  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "01/08/2026 03:12:44;R;7001.pbs1;user=ada group=ml exec_host=n1/0*96+n2/0*96 Exit_status=-20 run_count=2\n",
        "01/08/2026 03:12:44;Q;7001.pbs1;a=1,b=2,c=3,d=4,e=5\n",
        "==============================================================\nqname        gpu.q\nhostname     node1\n",
        "gpu.q:node1:ml:ada:train:7001:sge:0:" + "0:" * 40 + "\n",
    ],
    ids=["PBS", "PBS with commas", "qacct", "accounting"],
)
def test_records_of_other_schedulers_point_to_what_their_users_do(
    text: str, tmp_path: Path
) -> None:
    (line,) = words(tmp_path, text)
    assert line.startswith("jobs.txt: line 1: these are records of PBS or Grid Engine: ")
    assert 'docs/failure-rates.md says below "PBS and Grid Engine"' in line
    assert "sacct" not in line


TUNING = (
    HEAD
    + """
1|PREEMPTED|2026-06-01T09:00:00|2026-06-01T14:12:00|05:12:00|gres/gpu=8|a
1|PREEMPTED|2026-06-01T14:47:00|2026-06-02T01:47:00|11:00:00|gres/gpu=8|a
2|TIMEOUT|2026-06-02T02:22:00|2026-06-03T02:22:00|1-00:00:00|gres/gpu=8|a
3|DEADLINE|2026-06-04T17:06:00|2026-06-04T18:18:00|01:12:00|gres/gpu=8|a
4|FAILED|2026-06-04T19:00:00|2026-06-04T19:03:00|00:03:00|gres/gpu=8|a
5|COMPLETED|2026-06-04T20:00:00|2026-06-05T09:00:00|13:00:00|gres/gpu=8|a
6|CANCELLED by 7|2026-06-05T20:00:00|2026-06-06T09:00:00|13:00:00|gres/gpu=8|a
7|OUT_OF_MEMORY|2026-06-07T20:00:00|2026-06-07T21:00:00|01:00:00|cpu=8|a
"""
)


def test_jobs_that_were_ended_and_do_not_count_are_named_with_how_to_count_them(
    tmp_path: Path,
) -> None:
    told = list(read(tmp_path, TUNING).said())
    left_out = "not counted: 2 PREEMPTED, 1 TIMEOUT, 1 DEADLINE; if your training restarts after those, add "  # fmt: skip
    assert f"{left_out}--count PREEMPTED,DEADLINE and --limit 24h for TIMEOUT" in told
    some = [*FAILURE_STATES, "PREEMPTED", "TIMEOUT"]
    counted = read(tmp_path, TUNING, states=some)
    assert counted.failures == 4
    assert any(line.startswith("not counted: 1 DEADLINE") and line.endswith("add --count PREEMPTED,TIMEOUT,DEADLINE") for line in counted.said())  # fmt: skip
    every = read(tmp_path, TUNING, states=[*some, "DEADLINE"])
    assert not any("not counted" in line for line in every.said())
    (tmp_path / "own.yaml").write_text("title: ours\ncounts: jobs\nlog: jobs.txt\n")
    (tmp_path / "jobs.txt").write_text(TUNING)
    own = tmp_path / "own.yaml"
    assert f"{left_out}them to `states`" in list(read_rate(own).said())
    assert not any("TIMEOUT" in line for line in read_rate(own, with_limit=True).said())
    assert read_rate(own).file.restart_s == 600
    assert read_rate(own, restart_s=90).file.restart_s == 90


@pytest.mark.parametrize(("minutes", "named"), [(2.0, False), (5.0, True)])
def test_a_job_that_failed_sooner_than_a_restart_takes_is_named(
    minutes: float, named: bool, tmp_path: Path
) -> None:
    rate = read(tmp_path, TUNING, restart_minutes=minutes)
    told = "1 job (4) failed sooner than a restart takes (5 min), perhaps by an error in a script: counted; remove its line if it was"  # fmt: skip
    assert rate.failures == 1
    assert (told in list(rate.said())) == named


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("JobID State Start End Elapsed AllocTRES\n".replace(" ", "|") + "1|FAILED|2026-06-01T09:00:00|2026-06-01T14:12:00|05:12:00|billing=3+\n", "AllocTRES is cut off (+): print it whole by "),
        ('{"jobs":[{"job_id":1201234,"state":{"current":["NODE_FAIL"]}}]}', "line 1: this is JSON, not a table: print the jobs by "),
        ('{\n  "jobs": [\n    {"job_id": 1,\n', "line 1: this is JSON, not a table: print the jobs by "),
        ("JobID    State\n-------- ----------\n1        NODE_FAIL\n", "no column End and no column Elapsed and no column AllocTRES: ask for them by "),
    ],
    ids=["cut off", "JSON", "JSON in lines", "default columns"],
)  # fmt: skip
def test_other_forms_of_sacct_are_refused_with_the_one_to_print(
    text: str, line: str, tmp_path: Path
) -> None:
    (said,) = words(tmp_path, text)
    assert line + ASK in said


def test_the_form_parsable_is_read_with_steps_and_its_last_separator(tmp_path: Path) -> None:
    parsable = "".join(f"{line}|\n" for line in TUNING.splitlines())
    steps = "1.batch|PREEMPTED|2026-06-01T09:00:00|2026-06-01T14:12:00|05:12:00|gres/gpu=8|a|\n"
    one, other = read(tmp_path, TUNING), read(tmp_path, parsable + steps)
    assert (list(one.said()), one.mean_gpu_hours) == (list(other.said()), other.mean_gpu_hours)


def test_a_job_that_runs_since_yesterday_is_believed(tmp_path: Path) -> None:
    short = "1|COMPLETED|2026-06-01T08:00:00|2026-06-01T09:10:00|01:10:00|gres/gpu=8|a"
    runs = "2|RUNNING|2026-06-07T18:08:00|Unknown|13:50:00|gres/gpu=8|a"
    rate = read(tmp_path, table(short, runs))
    assert rate.mean_gpu_hours == pytest.approx(8 * 15 / 3)


MIXED = """\
1|PREEMPTED|2026-06-01T00:00:00|2026-06-01T10:00:00|10:00:00|gres/gpu=1|a
2|COMPLETED|2026-06-02T00:00:00|2026-06-02T20:00:00|20:00:00|gres/gpu=4|a
3|PREEMPTED|2026-06-03T00:00:00|2026-06-03T06:00:00|06:00:00|gres/gpu=8|a
4|NODE_FAIL|2026-06-04T00:00:00|2026-06-04T04:00:00|04:00:00|gres/gpu=8|a
"""
"""40 h of jobs and 170 GPU-hours: two preemptions, one every 20 h of a job, and a failure, one every 170 GPU-hours."""


def test_preemptions_are_counted_per_job_by_every_way_to_name_a_log(tmp_path: Path) -> None:
    states = [*FAILURE_STATES, "PREEMPTED"]
    options = read(tmp_path, table(MIXED), gpus=2, states=states, restart_minutes=0)
    file = tmp_path / "rate.yaml"
    file.write_text(f"title: a\ncounts: b\nlog: jobs.txt\nrestart_minutes: 0\nstates: [{', '.join(states)}]\n")  # fmt: skip
    for rate in (options, read_rate(file)):
        for gpus in (1, 2, 8, 64):
            a_hour = 2 / 40 + gpus / 170
            assert rate.mean_hours(gpus) == pytest.approx(1 / a_hour)
            assert failures_per_s(rate, gpus)[0] == pytest.approx(a_hour / 3600)
            at = rate.at(gpus)
            assert gpus / at.mean_gpu_hours == pytest.approx(a_hour)
            assert at.hi / at.mean_gpu_hours == pytest.approx(rate.hi / rate.mean_gpu_hours)
            assert at.at(gpus).mean_gpu_hours == at.mean_gpu_hours
    sentence = "2 PREEMPTED: counted per job, one in 20 h for your jobs of 4 GPUs, and just as often on 64 GPUs"
    assert sentence in [*options.at(64).said()]
    assert "3 failures in 170 GPU-hours" in [*options.at(64).said()]
    assert not any("per job" in line for line in options.at(4).said())
    with file.open("a") as more:
        more.write("gpus: 8\nfrom: 2026-06-01T00:00:00\nto: 2026-06-05T04:00:00\n")
    watched = read_rate(file)
    assert watched.mean_hours(8) == pytest.approx(1 / (2 * 4.25 / 800 + 8 / 800))
    sizeless = re.sub(r"\|gres[^|]*", "", table(MIXED).replace("|AllocTRES", ""))
    (tmp_path / "jobs.txt").write_text(sizeless)
    watched = read_rate(file)
    assert watched.mean_hours(8) == pytest.approx(100 / 3), "all its GPUs are one job"
    assert watched.mean_hours(16) == pytest.approx(1 / (2 / 100 + 16 / 800))

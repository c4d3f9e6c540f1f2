"""The options of `ckptbench decide` take what people have: numbers of a progress bar, of Slurm, of `du`; parameters, a price, a time limit."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_command import BOTH, CASE, COSTS, LOG, refused, said

from ckptbench.cli.verbs import decide, run
from ckptbench.common.errors import ConfigError, DataError
from ckptbench.decide.rates import exact_interval, published

REST = ["--step", "2.5s", "--restart", "8min", "--blocking", "60s"]
STORAGE = ["--bandwidth", "1.6GB/s"]


def changed(option: str, value: str) -> list[str]:
    """The case with another value of an option."""
    case = [*CASE, "--blocking", "60s"]
    at = case.index(option)
    return [*case[: at + 1], value, *case[at + 2 :]]


@pytest.mark.parametrize(
    ("option", "value", "same"),
    [
        ("--mtbf", "14:00:00", "14h"),
        ("--mtbf", "1-02:00:00", "26h"),
        ("--mtbf", "1-02", "26h"),
        ("--mtbf", "0.5 month", "365.25h"),
        ("--step", "1.2 s/it", "1.2s"),
        ("--step", "1.2s/step", "1.2s"),
        ("--step", "0.8it/s", "1.25s"),
        ("--step", "48 steps/min", "1.25s"),
        ("--step", "850ms/it", "0.85s"),
        ("--restart", "00:08:00", "8min"),
        ("--blocking", "00:01:00", "60s"),
        ("--blocking", "blocking=00:01:00", "60s"),
    ],
)
def test_numbers_are_read_as_bars_and_slurm_print_them(
    option: str, value: str, same: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(changed(option, value), capsys) == said(changed(option, same), capsys)


@pytest.mark.parametrize(
    "count", ["3/week", "3 per week", "3 a week", "3 in 7 days", "3 failures in 7 days", "3/7d", "3x per week"]
)  # fmt: skip
def test_a_count_in_place_of_a_mean_has_the_interval_of_a_count(
    count: str, capsys: pytest.CaptureFixture[str]
) -> None:
    both = ["--failures", "3", "--days", "7"]
    expected = said(["decide", "--gpus", "256", *both, *REST], capsys)
    assert "Only 3 failures: the true rate may be" in " ".join(expected.split())
    assert said(["decide", "--gpus", "256", "--mtbf", count, *REST], capsys) == expected
    of_costs = [said(["decide", "--costs", COSTS, *each], capsys) for each in (both, ["--mtbf", count])]  # fmt: skip
    assert of_costs[0] == of_costs[1]


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--step", "2,5s", "write 2.5s"),
        ("--mtbf", "14:00", "write 14h00min or 14min00s"),
        ("--blocking", "40s-50s", "a range: write its middle, as 45s"),
        ("--blocking", "40-50s", "a range: write its middle, as 45s"),
        ("--blocking", "45s±5s", "a range: write its middle, as 45s"),
        ("--restart", "0s", "write the shortest likely value, as 1ms"),
        ("--mtbf", "3/fortnight", "is not a time"),
        ("--mtbf", "0:00:00", "is not a time"),
        ("--step", "0it/s", "is not a time"),
    ],
)
def test_what_means_two_things_is_one_line_that_says_what_to_write(
    option: str, value: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = refused(changed(option, value), capsys)
    assert text.count("\n") == 1
    assert option in text
    assert words in text


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--async", "0s+90s"], "as 1ms"),
        (["--now", "2880"], 'write "2880 steps", or a time'),
        (["--state", "98GB", "--bandwidth", "100Gb/s"], "write 100Gbit/s or 100GB/s"),
        (["--state", "98GB", "--bandwidth", "100Gbps"], "write 100Gbit/s or 100GB/s"),
        (["--failures", "3.5", "--days", "7"], "use a whole number from 0 to 100,000"),
        (["--failures", "100001", "--days", "7"], "use a whole number from 0 to 100,000"),
        (["--params", "7X", *STORAGE], "write it as 7B, 350M or 7e9"),
        (["--params", "7B", "--optimizer", "adamv", *STORAGE], "'adamw'"),
        (["--params", "7B", "--dtype", "int3", *STORAGE], "'bf16'"),
        (["--gpu-hour-price", "-2"], "as 2.5, $2.5 or 2.5 EUR"),
        (["--gpu-hour-price", "$0"], "as 2.5, $2.5 or 2.5 EUR"),
        (["--gpu-hour-price", "$2 EUR"], "as 2.5, $2.5 or 2.5 EUR"),
        (["--training-log", "-"], "write it to one first, as with > train.log"),
        (["--stall", "26s"], "give --blocking or --async"),
        (["--interval", "3h"], "give --now"),
    ],
)
def test_a_wrong_value_is_one_line(
    given: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = refused([*CASE, *given], capsys)
    assert text.count("\n") == 1
    assert words in text


def test_a_pipe_is_no_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for option in ("--training-log", "--log"):
        text = refused(["decide", "--gpus", "8", option, str(pipe)], capsys)
        assert "is not a file: write it to one first" in text


JOBS = (
    "JobID|State|Start|End|Elapsed|AllocTRES\n"
    "1|NODE_FAIL|2026-01-01T00:00:00|2026-01-03T00:00:00|2-00:00:00|cpu=8,gres/gpu=64\n"
    "2|COMPLETED|2026-01-04T00:00:00|2026-01-06T00:00:00|2-00:00:00|cpu=8,gres/gpu=64\n"
)
STEPS = "".join(f"[rank0]:step: {step}  loss:  2.5\n" for step in range(1, 9))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (JOBS.partition("\n")[2], "line 1: this is a job, not the names of the columns: leave out --noheader"),
        (JOBS.replace("|", "  "), "line 1: the columns of this table of sacct cannot be separated: print it by sacct"),
        (JOBS.replace("|", ","), "AllocTRES has commas: print the jobs with --parsable2"),
        (JOBS + "3|Caf\xe9", "correct it, or name another file"),
        (STEPS, "this is the log of a training: give it to --training-log"),
    ],
)  # fmt: skip
def test_a_table_of_jobs_that_cannot_be_read_says_how_to_print_it(text: str, words: str, tmp_path: Path) -> None:  # fmt: skip
    """Without a word of YAML files, where none was given."""
    log = tmp_path / "jobs.txt"
    log.write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=re.escape(words)) as raised:
        run(["decide", "--gpus", "64", "--log", str(log), *REST])
    assert "YAML" not in str(raised.value)


def test_the_command_line_above_a_table_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, with_command = tmp_path / "jobs.txt", tmp_path / "copied" / "jobs.txt"
    with_command.parent.mkdir()
    log.write_text(JOBS)
    with_command.write_text(f"[me@login ~]$ sacct --allusers --parsable2\n{JOBS}")
    texts = {said(["decide", "--gpus", "64", "--log", str(each), *REST], capsys) for each in (log, with_command)}  # fmt: skip
    assert len(texts) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [(JOBS, "this is a table of Slurm jobs: give it to --log"), ('{"global_step": 5, "epoch": 1.0}', "this is a trainer_state.json without steps in its log_history")],
)  # fmt: skip
def test_what_is_no_log_of_a_training_is_named(text: str, words: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(text)
    with pytest.raises(DataError, match=words):
        run(["decide", "--gpus", "8", "--mtbf", "14h", "--restart", "5min", "--training-log", str(log)])  # fmt: skip


def test_who_gives_fewer_gpus_than_a_log_has_leaves_them_out() -> None:
    with pytest.raises(ConfigError, match=r"which cannot be projected to fewer: leave it out$"):
        run(["decide", "--costs", COSTS, "--mtbf", "14h", "--gpus", "8"])


@pytest.mark.parametrize("name", ["Llama3", "LLAMA 3", "llama-3", "OPT_175B"])
def test_a_published_rate_is_found_however_it_is_written(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stem = "llama3" if name[0] in "Ll" else "opt-175b"
    texts = {said(["decide", "--gpus", "8", "--rate", each, *REST], capsys) for each in (name, stem)}  # fmt: skip
    assert len(texts) == 1


def test_a_name_that_is_nearly_one_is_told_which_it_is() -> None:
    with pytest.raises(ConfigError, match=r"; did you mean llama3\?$"):
        run(["decide", "--gpus", "8", "--rate", "lama3", *REST])


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ([], "98GB"),
        (["--optimizer", "AdamW", "--dtype", "bf16"], "98GB"),
        (["--dtype", "fp32"], "84GB"),
        (["--dtype", "pure-bf16"], "42GB"),
        (["--optimizer", "momentum"], "70GB"),
        (["--optimizer", "sgd"], "42GB"),
        (["--optimizer", "sgd", "--dtype", "fp32"], "28GB"),
        (["--optimizer", "adafactor", "--dtype", "fp32"], "28GB"),
        (["--optimizer", "lion", "--dtype", "fp16"], "70GB"),
    ],
)
def test_parameters_say_how_large_a_checkpoint_is(
    options: list[str], size: str, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = ["--json", *STORAGE]
    of_size = json.loads(said([*CASE, "--state", size, *numbers], capsys))
    for params in ("7B", "7e9", "7,000M", "7 billion"):
        counted = json.loads(said([*CASE, "--params", params, *options, *numbers], capsys))
        assert counted["strategies"] == of_size["strategies"]
        assert f": {size.replace('GB', ' GB')}, " in counted["remarks"][0]


def test_what_is_counted_of_parameters_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(said([*CASE, "--params", "7B", *STORAGE], capsys).split())
    assert (
        "7 billion parameters: 98 GB, 14 bytes each (2 weights + 4 master copy + 8 adamw)." in text
    )
    for more in (["--state", "98GB"], []):
        given = refused([*CASE, "--blocking", "60s", "--optimizer", "adamw", *more], capsys)
        assert "--optimizer: give --params too" in given
    twice = refused([*CASE, "--params", "7B", "--state", "9GB", *STORAGE], capsys)
    assert "--state and --params: give one of them" in twice
    assert "--params: give --bandwidth or --rank-bandwidth too" in refused([*CASE, "--params", "7B"], capsys)  # fmt: skip


@pytest.mark.parametrize(
    ("price", "a_day", "a_month"),
    [("2.5", "460 a day", "14,000 a month"), ("$2.5", "$460 a day", "$14,000 a month"), ("2.5 EUR", "460 EUR a day", "14,000 EUR a month"), ("€2.5", "€460 a day", "€14,000 a month"), ("0.001", "0.18 a day", "5.60 a month")],
)  # fmt: skip
def test_money_is_said_in_the_currency_of_the_price(
    price: str, a_day: str, a_month: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """182 GPU-hours a day; a month has 30.4 days."""
    text = " ".join(said([*BOTH, "--gpu-hour-price", price], capsys).split())
    assert f"blocking saves {a_day}, {a_month}; async saves " in text
    worse = [*CASE, "--async", "3s+5h", "--now", "2h", "--blocking", "60s"]
    assert re.search(r"async costs \S+( EUR)? a day more|async costs .* a month more", " ".join(said([*worse, "--gpu-hour-price", price], capsys).split()))  # fmt: skip
    assert "blocking loses" in " ".join(said([*CASE, "--blocking", "60s", "--gpu-hour-price", price], capsys).split())  # fmt: skip


def test_money_says_what_is_lost_today_and_a_price_may_be_said_by_the_hour(
    capsys: pytest.CaptureFixture[str],
) -> None:
    texts = [" ".join(said([*BOTH, "--gpu-hour-price", price], capsys).split()) for price in ("2.5$", "2.5$/h", "2.5 $ per GPU-hour")]  # fmt: skip
    assert texts[0] == texts[1] == texts[2]
    assert re.search(
        r"Money, at 2.5 \$ a GPU-hour: now loses 1,300 \$ a day, [\d,]+ \$ a month; blocking saves ",
        texts[0],
    )


def test_a_count_in_a_time_is_read_by_failures_too(capsys: pytest.CaptureFixture[str]) -> None:
    case = ["decide", "--gpus", "8", *REST, "--json"]
    counted = said([*case, "--failures", "4", "--days", "7"], capsys)
    assert said([*case, "--failures", "4/week"], capsys) == counted
    assert "leave out --days" in refused([*case, "--failures", "4/week", "--days", "7"], capsys)


def test_the_help_names_every_published_rate(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["decide", "--help"]) == 0
    shown = re.sub(r"\s+", "", capsys.readouterr().out)
    assert not [each.stem for each in published().glob("*.yaml") if each.stem not in shown]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--async", "3s,90s"], "write STOP+WRITE, as 3s+90s"),
        (["--mtbf", "0.43/day"], "write a whole number of failures, as 3/week, or a time, as 14h"),
        (["--html", "-"], "'-' is not a file name"),
        (["--training-log", LOG, LOG], "write its option before each file, as --training-log A --training-log B"),
    ],
)  # fmt: skip
def test_what_is_refused_says_what_to_write(
    given: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in refused(["decide", *given], capsys)


LIMITED = [*BOTH, "--limit", "24h"]


def test_a_time_limit_says_both_ways_to_end_a_job(capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(said([*LIMITED, "--json"], capsys))
    unsaved, few, at_signal = told["remarks"][:3]
    assert few.startswith("With few saves in a job, brackets also cover where the last one falls")
    assert unsaved == "A job ends after 24 h: at the best interval that loses 19 min (blocking), 5.7 min (async) of work on average, and a restart. The table counts both."  # fmt: skip
    assert at_signal == "With a save at a signal before the end: blocking every 40 min, loses 5.9 % (send the signal 160 s before the end); async every 9.1 min, loses 2.4 % (send the signal 230 s before the end)."  # fmt: skip
    without = json.loads(said([*BOTH, "--json"], capsys))
    explained = said([*LIMITED, "--explain"], capsys)
    assert re.search(r"lost work +restarts +time limit\n", explained)
    for limited, free in zip(told["strategies"], without["strategies"], strict=True):
        assert limited["loses"] > free["loses"]
        assert re.search(rf"{free['name']} +\S+ % +\S+ % +\S+ % +\S+ % +\S+ %\n", explained)
        assert limited["interval_s"] < free["interval_s"], "ends at the limit are failures too"


def test_a_limit_alone_is_answered_as_if_nothing_else_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["decide", "--gpus", "8", *REST, "--limit", "24h"]
    alone = json.loads(said([*given, "--json"], capsys))
    rare = json.loads(said([*given, "--mtbf", "1000000 days", "--json"], capsys))
    assert alone["strategies"][0]["steps"] == rare["strategies"][0]["steps"]
    assert alone["failures_per_s"] == 0
    text = said(given, capsys)
    assert "Only the time limit is counted: no option says how often the job fails" in " ".join(
        text.split()
    )
    assert "At 1/3 or 3 times" not in text
    costs = tmp_path / "costs.yaml"
    costs.write_text(
        "title: mine\ngpus: 8\nstep_s: 2.5\nsteps_per_epoch: 1000\n"
        "strategies:\n  - {name: blocking, stall_s: 60}\nrecoveries:\n  - {name: restart, down_s: 480}\n"
    )
    of_file = said(["decide", "--costs", str(costs), "--limit", "24h"], capsys)
    assert of_file.startswith("mine: 8 GPUs, step 2.5 s, no failures but the limit\n")


def test_settings_for_a_signal_have_the_line_of_slurm(capsys: pytest.CaptureFixture[str]) -> None:
    settings = said([*LIMITED, "--save-steps"], capsys)
    assert "blocking, if training saves at a signal: every " in settings
    for seconds in (160, 230):
        assert f"  Slurm         #SBATCH --signal=TERM@{seconds}, to all that srun starts (B:TERM: only to the script)\n" in settings  # fmt: skip
        assert f"  Lightning     #SBATCH --signal=USR1@{seconds} in its place, and training by srun\n" in settings  # fmt: skip
    assert settings.count("  Transformers  enable_jit_checkpoint=True (from version 5)\n") == 2
    assert settings.count("  torchtitan    does not save at a signal by itself\n") == 2
    assert settings.count("  Megatron-LM   --exit-signal-handler\n") == 2
    late = "kills its ranks 30 s after a SIGTERM: start them by srun without it, or give it --shutdown-timeout {} (PyTorch 2.13)"
    for seconds in (160, 230):
        assert f"  torchrun      {late.format(seconds)}\n" in settings
    remarks = json.loads(said([*LIMITED, "--json"], capsys))["remarks"]
    assert f"torchrun {late.format(230)}." in remarks
    quick = [*CASE, "--blocking", "20s", "--limit", "24h"]
    assert "torchrun" not in said(quick, capsys) + said([*quick, "--save-steps"], capsys)


def test_warnings_beside_settings_go_to_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = tmp_path / "jobs.txt"
    ran = "|2026-01-01T00:00:00|2026-01-02T00:00:00|1-00:00:00|gres/gpu=8\n"
    jobs.write_text(f"JobID|State|Start|End|Elapsed|AllocTRES\n1|PREEMPTED{ran}2|FAILED{ran}")
    for more, also in (([], ()), (["--explain"], ("Failures as in jobs.txt",))):
        assert run(["decide", "--gpus", "8", "--log", str(jobs), *REST, "--save-steps", *more]) == 0
        printed = capsys.readouterr()
        assert "Not counted: 1 PREEMPTED" not in printed.out
        for words in ("Not counted: 1 PREEMPTED", *also):
            assert words in printed.err


def test_no_interval_is_longer_than_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    """Where failures are rare, the best one is of 12.5 hours without a limit."""
    rare = ["decide", "--gpus", "8", "--gpu-mtbf", "50000h", *REST]
    for limit_s in (3600, 6 * 3600, 24 * 3600):
        (told,) = json.loads(said([*rare, "--limit", f"{limit_s}s", "--json"], capsys))["strategies"]  # fmt: skip
        longest = told["fine_to_steps"] or told["steps"]
        assert 2.5 * longest + 60 + 480 <= limit_s
    text = " ".join(said([*rare, "--limit", "24h", "--now", "24h"], capsys).split())
    assert text.startswith("now 1,440 min loses 100 %")
    assert "no other save, loses" in " ".join(said([*rare, "--limit", "6h"], capsys).split())
    none = " ".join(said([*rare, "--limit", "8min"], capsys).split())
    assert "none helps" in none
    assert "A job ends after 8.0 min, before a restart and a save are done" in none


def test_with_few_saves_in_a_job_their_phase_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second save of two would end 10 minutes behind the limit: half of the day is lost, and on average over all phases a quarter."""
    rare = ["decide", "--gpus", "8", "--gpu-mtbf", "5000000h", *REST, "--limit", "24h"]
    text = " ".join(said([*rare, "--now", "12h"], capsys).split())
    assert text.startswith("now 720 min loses 26 % [0.69, 51]")
    few = "brackets also cover where the last one falls before the limit. If all takes exactly as long as given, now loses 50 %"
    assert few in text
    (told,) = json.loads(said([*rare, "--now", "12h", "--json"], capsys))["strategies"]
    now, hours = told["now"], 24 * 8
    assert [now["loses_lo"], now["loses"], now["loses_hi"]] == pytest.approx(
        [0.0069, 0.257, 0.507], rel=0.01
    )
    saved = (told["saves_gpu_hours_a_day_lo"], told["saves_gpu_hours_a_day_hi"])
    assert saved == pytest.approx([hours * (now[f"loses_{end}"] - told[f"loses_{other}"]) for end, other in (("lo", "hi"), ("hi", "lo"))])  # fmt: skip
    often = " ".join(said([*rare, "--now", "0.7h"], capsys).split())
    assert "as given, now loses" not in often
    common = [
        "decide",
        "--gpus",
        "8",
        "--failures",
        "4",
        "--days",
        "14",
        "--step",
        "3s",
        "--blocking",
        "45s",
        "--restart",
        "6min",
    ]
    text = " ".join(said([*common, "--now", "2h", "--limit", "24h"], capsys).split())
    assert "exactly as long as given, now loses 8.6 %" in text, "twelve saves just fail to fit"
    costs = tmp_path / "costs.yaml"
    costs.write_text(
        "title: mine\ngpus: 8\nstep_s: 2.5\nsteps_per_epoch: 1000\ninterval: 17280 steps\n"
        "strategies:\n  - {name: blocking, stall_s: 60}\nrecoveries:\n  - {name: restart, down_s: 480}\n"
    )
    of_file = said(["decide", "--costs", str(costs), "--limit", "24h"], capsys)
    assert few in " ".join(of_file.split())


def test_savings_have_their_interval_from_the_same_failures(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The least and the most that any rate in its interval gives: not the difference of two losses that know nothing of each other."""
    case = ["decide", "--gpus", "8", "--step", "1.2s", "--blocking", "45s", "--restart", "5min", "--now", "80min", "--json"]  # fmt: skip
    (told,) = json.loads(said([*case, "--failures", "4", "--days", "15"], capsys))["strategies"]
    ends = exact_interval(4, 15 * 24.0)
    hours = [ends.lo * (ends.hi / ends.lo) ** (part / 16) for part in range(17)]
    rates = [["--mtbf", f"{each}h"] for each in (90.0, *hours)]
    saved = [json.loads(said([*case, *rate], capsys))["strategies"][0]["saves_gpu_hours_a_day"] for rate in rates]  # fmt: skip
    name = "saves_gpu_hours_a_day"
    assert [told[name], told[f"{name}_lo"], told[f"{name}_hi"]] == pytest.approx([saved[0], min(saved), max(saved)], rel=1e-6)  # fmt: skip
    assert min(saved) not in (saved[1], saved[-1]), "80 min is best at a rate in between"
    apart = 24 * 8 * (told["now"]["loses_hi"] - told["loses_lo"])
    assert told[f"{name}_hi"] < apart / 4
    text = said([*case[:-1], "--failures", "4", "--days", "15"], capsys)
    assert re.search(r"saves 0\.\d+ \[0\.\d+, 0\.\d+\]", text), text


def test_a_limit_beside_what_knows_none_or_counts_it_already_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "jobs.txt").touch()
    jobs = ["--log", str(tmp_path / "jobs.txt"), "--count", "PREEMPTED,TIMEOUT", "--limit", "24h"]
    text = refused(["decide", "--gpus", "8", *jobs, *REST], capsys)
    assert "--count TIMEOUT and --limit: give one of them" in text
    ended = "|2026-01-0{0}T00:00:00|2026-01-0{1}T00:00:00|1-00:00:00|gres/gpu=8\n"
    states = ("FAILED", "TIMEOUT", "OUT_OF_MEMORY")
    lines = (f"{day}|{state}" + ended.format(day, day + 1) for day, state in enumerate(states, 1))
    (tmp_path / "jobs.txt").write_text("JobID|State|Start|End|Elapsed|AllocTRES\n" + "".join(lines))
    free, limited = (" ".join(said(["decide", "--gpus", "8", *jobs[:2], *REST, *more], capsys).split()) for more in ([], jobs[4:]))  # fmt: skip
    for text, states in ((free, "OUT_OF_MEMORY and --limit 24h for TIMEOUT"), (limited, "OUT_OF_MEMORY")):  # fmt: skip
        assert f"if your training restarts after those, add --count {states}." in text


def test_the_sentence_on_the_signal_says_what_is_a_bound_and_what_a_rate_leaves_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    case = ["decide", "--gpus", "8", *REST, "--limit", "24h"]
    text = " ".join(said([*case, "--failures", "0", "--days", "7"], capsys).split())
    assert re.search(r"the end: every \S+ min or more, loses at most \S+ % \(send", text)
    counts = "A published rate excludes preemptions"
    assert counts not in text
    assert counts in " ".join(said([*case, "--rate", "llama3"], capsys).split())


def test_a_limit_that_is_never_reached_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    free, limited = (json.loads(said([*BOTH, *more, "--json"], capsys)) for more in ([], ["--limit", "10 years"]))  # fmt: skip
    for one, other in zip(free["strategies"], limited["strategies"], strict=True):
        assert other["steps"] == one["steps"]
        assert other["loses"] == pytest.approx(one["loses"], rel=1e-9)


def test_costs_of_a_file_know_the_limit_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the options do, which have the same numbers."""
    costs = tmp_path / "costs.yaml"
    costs.write_text(
        "title: mine\ngpus: 256\nstep_s: 2.5\nsteps_per_epoch: 1000\ninterval: 2880 steps\n"
        "strategies:\n  - {name: blocking, stall_s: 60}\n  - {name: async, stall_s: 3, durable_s: 93}\n"
        "recoveries:\n  - {name: restart, down_s: 480}\n"
    )
    asked = ["--limit", "24h", "--gpu-hour-price", "$2", "--json"]
    of_file = json.loads(said(["decide", "--costs", str(costs), "--mtbf", "14h", *asked], capsys))
    of_options = json.loads(said([*BOTH, *asked], capsys))
    by_name = {each["name"]: each for each in of_file["strategies"]}
    for each in of_options["strategies"]:
        assert by_name[each["name"]]["steps"] == each["steps"]
        assert by_name[each["name"]]["loses"] == pytest.approx(each["loses"])
    assert "19 min (blocking)" in of_file["remarks"][1]
    assert "blocking every 40 min, loses 5.9 % (send the signal 160 s before the end)" in " ".join(
        of_file["remarks"]
    )
    assert of_file["remarks"][0].startswith(
        "Money, at $2 a GPU-hour: now loses $1,300 a day, $39,000 a month; async saves $"
    )


def test_a_training_that_is_done_within_one_job_does_not_meet_its_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bar says that it has 4,000 steps, of 1.2 s."""
    log = tmp_path / "train.log"
    bars = (f"{n}/4000 [{n * 6 // 300:02}:{n * 6 // 5 % 60:02}<1:00:00,  1.20s/it]" for n in range(0, 1500, 5))  # fmt: skip
    log.write_text("".join(f"\r  1%|1         | {bar}" for bar in bars) + "\n{'loss': 2.1}\n")
    case = ["decide", "--training-log", str(log), "--gpus", "8", "--mtbf", "14h", "--restart", "5min", "--blocking", "45s"]  # fmt: skip
    free, long, short = (json.loads(said([*case, *more, "--json"], capsys)) for more in ([], ["--limit", "24h"], ["--limit", "1h"]))  # fmt: skip
    assert long["training_steps"] == 4000
    assert long["strategies"] == free["strategies"]
    assert "The training ends before the 24 h limit." in long["remarks"]
    assert short["strategies"] != free["strategies"]


def test_a_study_is_found_from_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from ckptbench.cli.types import TABLES

    tables = tmp_path / "results" / "tables"
    tables.mkdir(parents=True)
    (tables / "runs.parquet").touch()
    for folder in (tables, tables.parent, tmp_path):
        assert TABLES.convert(str(folder), None, None) == tables


def test_help_says_first_what_is_required_and_fits_80_columns() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from ckptbench.cli.main import main; main()", "decide", "--help"],
        capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "80"},
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    titles = [line for line in lines if re.match(r"[A-Z].*:$", line)]
    assert titles[0] == "How often it fails (one of these):"
    assert "More:" not in titles, "every option is in a group"
    shown = re.findall(r"^  (?:-h, )?(--[a-z-]+)", done.stdout, re.MULTILINE)
    assert sorted(shown) == sorted([*(param.opts[-1] for param in decide.params), "--help"])
    assert shown.index("--mtbf") < shown.index("--gpus") < shown.index("--blocking")


def test_a_shell_completes_options() -> None:
    """By the line that docs/save-steps.md gives."""
    page = Path(__file__).parents[2] / "docs" / "save-steps.md"
    assert 'eval "$(_CKPTBENCH_COMPLETE=bash_source ckptbench)"' in page.read_text()
    words = {"COMP_WORDS": "ckptbench decide --gpu", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv[0] = 'ckptbench'; from ckptbench.cli.main import main; main()"],
        capture_output=True, text=True, check=False, env={**os.environ, **words, "_CKPTBENCH_COMPLETE": "bash_complete"},
    )  # fmt: skip
    assert done.stdout.split() == ["plain,--gpus", "plain,--gpu-mtbf", "plain,--gpu-hour-price"]

"""The command `ckptbench`: what it prints, in which units, and how it refuses."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from ckptbench.cli.main import EXTRA, INSTALL
from ckptbench.cli.options import Options
from ckptbench.cli.printed import answer_from_options
from ckptbench.cli.sentences import AS_SUDDEN
from ckptbench.cli.verbs import WRONG_USE, decide, run
from ckptbench.common.errors import DataError

CASE = ["decide", "--gpus", "256", "--mtbf", "14h", "--step", "2.5s", "--restart", "8min"]
BOTH = [*CASE, "--blocking", "60s", "--async", "3s+90s", "--now", "2h"]
CONFIG = Path(__file__).resolve().parents[2] / "config"
COSTS = str(CONFIG / "costs-example.yaml")
LOG = str(CONFIG / "failures" / "example" / "log.csv")
HEAVY = ("pandas", "matplotlib", "scipy.stats", "pyarrow", "snakemake")
"""Packages that take longer to import than an answer may take."""


def said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    status = run(arguments)
    captured = capsys.readouterr()
    assert (status, captured.err) == (0, "")
    return captured.out


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    status = run(arguments)
    captured = capsys.readouterr()
    assert (status, captured.out) == (WRONG_USE, "")
    return captured.err


def test_the_answer_stands_beside_the_interval_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(BOTH, capsys).splitlines()
    assert lines[:3] == [
        "now       120 min  loses 8.7 %",
        "blocking   40 min  loses 5.7 %  saves 182 GPU-hours a day  (fine: 21 - 76 min)",
        "async     9.1 min  loses 2.2 %  saves 398                  (fine: 4.7 - 18 min)",
    ]
    assert "Now: every 2,880 steps, blocking; savings are against that." in lines
    assert max(map(len, lines)) <= 80


def test_the_settings_to_copy_are_in_whole_steps(capsys: pytest.CaptureFixture[str]) -> None:
    text = said([*BOTH, "--save-steps"], capsys)
    for number in (1000, 200):
        for setting in ("every_n_train_steps={}", "checkpoint.interval={}", "--save-interval {}"):
            assert setting.format(number) in text
    assert "save_steps=1000" in text
    for on in ("AsyncCheckpointIO()", "--checkpoint.async_mode=async", "--async-save"):
        assert text.count(on) == 1
        assert on in text.partition("async: ")[2]
    assert "Transformers  has no asynchronous saves of its own" in text


def test_without_an_interval_in_use_nothing_is_saved(capsys: pytest.CaptureFixture[str]) -> None:
    text = said([*CASE, "--async", "3s+90s"], capsys)
    assert text.startswith("async  9.1 min   loses 2.2 %")
    assert "saves" not in text
    assert "now" not in text


@pytest.mark.parametrize(
    "rate", [["--mtbf", "50400 s"], ["--gpu-mtbf", "3584 hours"], ["--gpu-mtbf", "149d 8h"]]
)
def test_the_rate_of_a_gpu_and_that_of_the_job_give_the_same(
    rate: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    others = [*CASE[:3], *CASE[5:], "--blocking", "60s", *rate]
    assert "blocking  40 min   loses 5.7 %" in said(others, capsys)


def test_size_and_bandwidth_stand_for_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    storage = ["--state", "96GB", "--bandwidth", "1.6GB/s"]
    assert said([*CASE, *storage], capsys) == said([*CASE, "--blocking", "60s"], capsys)
    both = said([*CASE, *storage, "--async", "3s"], capsys)
    assert both == said([*CASE, "--blocking", "60s", "--async", "3s+60s"], capsys)
    each = ["--state", "96GB", "--rank-bandwidth", "0.1GB/s"]
    assert said([*CASE, *each, "--shared-by", "256"], capsys) == said([*CASE, *each], capsys)
    more = refused([*CASE, *each, "--shared-by", "257"], capsys)
    assert "--shared-by is 257: use at most the 256 of --gpus" in more


@pytest.mark.parametrize(
    ("storage", "seconds"),
    [(("98GB",), "4.45s"), (("12.544TB",), "315.6s"), (("98GB", "--shared-by", "1"), "100s")],
)
def test_storage_tells_what_a_checkpoint_costs_on_many_gpus(
    storage: tuple[str, ...], seconds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A write of two seconds and more: at 40 GB/s where all write a part, and at 1 GB/s where one of them writes all."""
    many = ["decide", "--gpus", "1024", "--rate", "llama3", "--step", "1s", "--restart", "165s"]
    bandwidths = ["--rank-bandwidth", "1GB/s", "--bandwidth", "40GB/s", "--write-fixed", "2s"]
    of_storage = said([*many, *bandwidths, "--state", *storage], capsys)
    assert of_storage == said([*many, "--blocking", seconds], capsys)


def test_what_storage_does_is_nothing_without_a_state(capsys: pytest.CaptureFixture[str]) -> None:
    text = refused([*CASE, "--blocking", "60s", "--rank-bandwidth", "9GB/s"], capsys)
    assert "--rank-bandwidth: give --state too" in text


def test_a_plus_in_a_number_is_not_that_between_two_times(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert said([*CASE, "--async", "3e+0s + 9e+1 s"], capsys) == said([*CASE, "--async", "3s+90s"], capsys)  # fmt: skip


def test_several_strategies_of_a_kind_have_names(capsys: pytest.CaptureFixture[str]) -> None:
    text = said([*CASE, "--blocking", "one file=60s", "--blocking", "sharded=20s"], capsys)
    assert [line.split("  ")[0] for line in text.splitlines()[:2]] == ["one file", "sharded"]
    of_storage = ["--state", "9GB", "--bandwidth", "1GB/s", "--async", "blocking=3s+9s"]
    for twice in (["--blocking", "60s", "--blocking", "20s"], of_storage):
        assert "blocking: 2 strategies have this name" in refused([*CASE, *twice], capsys)


def test_all_that_is_missing_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    text = refused(["decide"], capsys)
    for option in ("--gpus", "--mtbf", "--gpu-mtbf", "--rate", "--log", "--step", "--blocking", "--restart"):  # fmt: skip
        assert option in text


def test_options_that_do_not_go_together_are_told_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = refused([*CASE, "--gpu-mtbf", "5y", "--async", "3s", "--state", "9GB"], capsys)
    for words in ("--mtbf and --gpu-mtbf", "--state: give --bandwidth"):
        assert words in text


@pytest.mark.parametrize("again", [["--now", "1h"], ["--gpus", "512"], ["--mtbf", "9h"], ["--json", "--json"]])  # fmt: skip
def test_an_option_of_one_value_is_refused_the_second_time(
    again: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused([*BOTH, *again], capsys) == f"Error: {again[0]}: given 2 times: give it once\n"


def test_up_to_a_million_gpus_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    others = [*CASE[3:], "--blocking", "60s"]
    assert "blocking" in said(["decide", "--gpus", "1000000", *others], capsys)
    assert "--gpus" in refused(["decide", "--gpus", "1000001", *others], capsys)


@pytest.mark.parametrize(("checkpoint", "helps"), [("50h", True), ("55h", False)])
def test_an_interval_is_recommended_where_more_than_a_hundredth_of_the_time_is_useful(
    checkpoint: str, helps: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    case = [*CASE[:5], "--step", "1h", "--restart", "1s", "--blocking", checkpoint]
    (told,) = json.loads(said([*case, "--json"], capsys))["strategies"]
    assert told["told"] == helps == (told["loses"] <= 0.99)
    assert ("none helps" in said(case, capsys)) != helps


STATE = ["--state", "98GB", "--bandwidth", "1.6GB/s"]


@pytest.mark.parametrize(
    ("given", "words"),
    [(("--blocking", "60s"), "leave out what --blocking says too"),
     (("--blocking", "60s", "--async", "3s+90s"), "leave out what --blocking says too"),
     (("--blocking", "60s", "--async", "3s"), None),
     (("--async", "3s+90s"), None)],
)  # fmt: skip
def test_no_option_is_left_aside(
    given: tuple[str, ...], words: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*CASE, *given, "--state", "98GB", "--bandwidth", "1.6GB/s"]
    if words is None:
        said(arguments, capsys)
    else:
        assert words in refused(arguments, capsys)


@pytest.mark.parametrize(
    ("option", "wrong"),
    [("--mtbf", "14"), ("--step", "2 GB"), ("--blocking", "60"), ("--async", "3s+"), ("--state", "98"), ("--now", "2 huors")],
)  # fmt: skip
def test_a_wrong_unit_is_one_line_that_names_the_option(
    option: str, wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = refused([*CASE, option, wrong], capsys)
    assert text.count("\n") == 1
    assert option in text
    assert "as in" in text


def test_json_has_the_keys_that_are_documented(capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(said([*BOTH, "--json"], capsys))
    documented = re.findall(
        r"`(?:\.\.\.)?(\w+)`", (CONFIG.parent / "docs" / "decision.md").read_text()
    )
    keys = {*told, *(key for each in told["strategies"] for key in (*each, *each["now"]))}
    assert {key.removesuffix("_lo").removesuffix("_hi") for key in keys} <= {*documented}
    assert json.dumps([each["steps"] for each in told["strategies"]]) == "[968, 219]"
    assert told["strategies"][1]["now"]["steps"] == 2880
    for each in told["strategies"]:
        rarer, oftener = (each[f"interval_s_if_failures_{n}"] for n in ("a_third", "three_times"))
        assert rarer > each["interval_s"] > oftener
    assert round(told["strategies"][1]["saves_gpu_hours_a_day"]) == 398


def test_one_line_says_what_other_rates_would_give(capsys: pytest.CaptureFixture[str]) -> None:
    """And of which strategy each number is."""

    def best(mtbf: str) -> list[str]:
        lines = said(["decide", *BOTH[1:3], "--mtbf", mtbf, *BOTH[5:]], capsys).splitlines()
        return [line.split()[1] for line in lines[1:3]]

    (blocking_rarer, async_rarer), (blocking, asynchronous) = best("42h"), best("4h 40min")
    assert (
        f"At 1/3 or 3 times the failures: blocking {blocking_rarer} or {blocking} min, async {async_rarer} or {asynchronous} min."
        in said(BOTH, capsys).splitlines()
    )


def test_a_published_rate_has_an_interval_and_the_line_of_other_rates(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["decide", *BOTH[1:3], "--rate", "llama3", *BOTH[5:]]
    text = said(arguments, capsys)
    assert re.search(r"async +\d+ min \[\d+, \d+\] +loses [\d.]+ % \[[\d.]+, [\d.]+\]", text)
    assert "as published of Llama 3" in text
    assert "more note with --explain" in text
    assert "At 1/3 or 3 times the failures" in said([*arguments, "--explain"], capsys)


def test_a_log_of_ones_own_has_an_interval_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "mine.csv"
    log.write_text("time\n" + "".join(f"{50_000 * each}\n" for each in range(40)))
    text = said(["decide", *BOTH[1:3], "--log", str(log), *BOTH[5:]], capsys)
    assert "as in mine.csv" in text
    assert re.search(r"blocking +\d+ min \[\d+, \d+\]", text)
    assert "times the failures" not in text


def test_an_unknown_rate_is_one_line_with_the_names() -> None:
    done = ended(["decide", *BOTH[1:3], "--rate", "lama", *BOTH[5:]])
    assert (done.returncode, done.stdout) == (1, "")
    assert "llama3" in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_interval_that_spans_more_than_tenfold_stands_beside_its_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A single failure tells hardly anything."""
    log = tmp_path / "mine.csv"
    log.write_text("time\n0\n9e6\n")
    text = said(["decide", *BOTH[1:3], "--log", str(log), *BOTH[5:]], capsys)
    assert re.search(
        r"blocking +9.1 h \[3.9, 57\] +loses 0.37 % \[0.058, 0.89\] +saves [\d.]+", text
    )
    assert "?" not in text
    text = said(["decide", *BOTH[1:3], "--log", str(log), *BOTH[5:], "--explain"], capsys)
    assert "the best interval may be 3.9 - 57 h: start with 9.1 h;" in " ".join(text.split())
    settings = said(["decide", *BOTH[1:3], "--log", str(log), *BOTH[5:], "--save-steps"], capsys)
    assert "blocking: every 13,000 steps, 9.0 h (best: 9.1 h [3.9, 57])" in settings
    told = json.loads(said(["decide", *BOTH[1:3], "--log", str(log), *BOTH[5:], "--json"], capsys))
    assert not any(each["told"] for each in told["strategies"])


def test_a_log_is_given_by_the_file_that_describes_it_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    described = LOG.replace(".csv", ".yaml")
    texts = [
        said(["decide", *BOTH[1:3], option, described, *BOTH[5:]], capsys)
        for option in ("--log", "--rate")
    ]
    assert texts[0] == texts[1]


def test_where_next_to_nothing_gets_done_nothing_is_to_be_copied(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ["decide", *BOTH[1:3], "--mtbf", "1s", *BOTH[5:]]
    assert re.search(r"blocking +none helps +loses 100 %", said(given, capsys))
    assert said([*given, "--save-steps"], capsys).splitlines() == [
        "blocking: no interval helps",
        "async: no interval helps",
    ]


@pytest.mark.parametrize("text", ["0", "2.5", "1e9", "256 GPUs", "1,0", "-3", ""])
def test_a_number_of_gpus_is_whole(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["decide", "--gpus", text, *BOTH[3:]]) == 2
    assert "use a whole number from 1 to 1,000,000" in capsys.readouterr().err


def test_a_log_without_failures_gives_a_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "jobs.txt"
    log.write_text(
        "JobID|State|Start|End|Elapsed|AllocTRES\n"
        "1|COMPLETED|2026-01-01T00:00:00|2026-01-11T00:00:00|10-00:00:00|gres/gpu=64\n"
    )
    text = said(["decide", "--gpus", "64", "--log", str(log), *BOTH[5:]], capsys)
    assert "at most one in 3.3 days on 64 GPUs" in text
    assert "Best intervals may be longer, and losses smaller." in " ".join(text.split())
    assert re.search(r"now +120 min +loses at most 2.2 %", text)
    assert re.search(r"blocking +at least 97 min +loses at most 2.2 % +saves at most 0.67", text)
    assert "fine" not in text
    long = ["--blocking", f"{'a' * 60}=60s", "--blocking", f"{'b' * 60}=70s"]
    wide = said(
        ["decide", "--gpus", "64", "--log", str(log), *CASE[5:], *long, "--now", "1h"], capsys
    )
    assert "Fine" not in wide
    often = said(["decide", "--gpus", "64", "--log", str(log), *BOTH[5:-1], "1h"], capsys)
    assert "saves at least 3." in often, "who saves too often saves more where failures are rarer"
    told = json.loads(
        said(["decide", "--gpus", "64", "--log", str(log), *BOTH[5:], "--json"], capsys)
    )
    assert all(each["bound"] for each in told["strategies"])


def test_a_count_of_failures_is_given_by_two_options(capsys: pytest.CaptureFixture[str]) -> None:
    count = ["--failures", "3", "--days", "7"]
    text = said(["decide", *BOTH[1:3], *count, *BOTH[5:]], capsys)
    assert re.search(r"now +120 min +loses 2.8 % \[1.2, 6.6\]", text)
    assert (
        "Failures as in your count of 3 in 7 days: one in 56 h on 256 GPUs. Only 3 failures:"
        in " ".join(text.split())
    )
    assert text == said(
        ["decide", *BOTH[1:3], "--failures", "3", "--days", "1 week", *BOTH[5:]], capsys
    )
    of_costs = said(["decide", "--costs", COSTS, *count], capsys)
    assert (
        "Only 3 failures: the true rate may be 0.21 to 2.9 times this (brackets: 95 %). Failures as in your count of 3 in 7 days: one in 56 h on 512 GPUs."
        in " ".join(of_costs.split())
    )
    for half in (count[:2], count[2:]):
        assert "give both, as in --failures 3 --days 7" in refused([*BOTH, *half], capsys)
    for days in ("0", "nan", "soon"):
        assert "--days" in refused(["decide", *BOTH[1:3], *count[:3], days, *BOTH[5:]], capsys)


def test_where_failures_come_too_often_no_interval_helps(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = said([*CASE[:3], "--mtbf", "2min", *CASE[5:], "--blocking", "60s"], capsys)
    assert re.match(r"blocking +none helps +loses (99|100) %", text)


def test_what_goes_to_no_terminal_has_80_columns_and_no_colour() -> None:
    names = ["--blocking", f"{'a long name ' * 12}=60s", "--async", "b=3s+90s"]
    text = printed([*CASE, *names, "--now", "2h"], COLUMNS="40", TERM="xterm-256color")
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    assert text == printed([*CASE, *names, "--now", "2h"], COLUMNS="300")


@pytest.mark.parametrize(("columns", "widest"), [(60, 60), (80, 80), (200, 100)])
def test_an_answer_has_the_width_of_its_terminal(columns: int, widest: int) -> None:
    rate = [*BOTH[:3], "--rate", "llama3", *BOTH[5:], "--explain"]
    lines = on_a_terminal(rate, columns).splitlines()
    plain = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in lines]
    prose = [line for line in plain if not re.search(r"loses +[\d.]+ %", line)]
    assert widest - 20 < max(map(len, prose)) <= widest
    assert max(map(len, plain)) <= max(widest, 75), "numbers are not broken"


def test_a_terminal_shows_the_best_row_in_bold_unless_it_is_to_have_no_colour() -> None:
    lines = on_a_terminal(BOTH, 80).splitlines()
    assert [line.startswith("\x1b[") for line in lines[:3]] == [False, False, True]
    assert "\x1b" not in on_a_terminal(BOTH, 80, NO_COLOR="1")
    assert "\x1b" not in on_a_terminal(BOTH, 80, TERM="dumb")


def test_explain_says_what_each_row_loses_it_to(capsys: pytest.CaptureFixture[str]) -> None:
    """Together these are all of it."""
    text = said([*BOTH, "--explain"], capsys)
    assert re.search(r"blocking +5.7 % +2.3 % +2.4 % +0.95 %\n", text)
    for choice in (each for more in ([], ["--limit", "24h"]) for each in answer_from_options(parsed([*BOTH, *more])).choices):  # fmt: skip
        assert choice.losses is not None
        assert choice.losses.saves + choice.losses.lost_work + choice.losses.restarts + choice.losses.at_limit == pytest.approx(choice.loses.value)  # fmt: skip


def test_csv_has_a_row_a_strategy_with_the_keys_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    for case in (BOTH, BOTH[:-2]):
        rows = list(csv.DictReader(said([*case, "--csv"], capsys).splitlines()))
        told = json.loads(said([*case, "--json"], capsys))["strategies"]
        for row, each in zip(rows, told, strict=True):
            flat = {**each, **{f"now_{key}": own for key, own in (each["now"] or {}).items()}}
            del flat["now"]
            assert {key: own for key, own in row.items() if own} == {key: str(own) for key, own in flat.items() if own is not None}  # fmt: skip
    assert "give one of them" in refused([*BOTH, "--csv", "--json"], capsys)


def parsed(arguments: list[str]) -> Options:
    """The options, without what the answer is to look like."""
    context = decide.make_context("decide", arguments[1:])
    forms = ("save_steps", "explain", "as_csv", "as_json", "html")
    return Options(**{key: own for key, own in context.params.items() if key not in forms})


def on_a_terminal(arguments: list[str], columns: int, **environment: str) -> str:
    """What the command prints there."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    shell = {key: own for key, own in os.environ.items() if key not in ("COLUMNS", "NO_COLOR")}
    subprocess.run(
        [sys.executable, "-c", "from ckptbench.cli.main import main; main()", *arguments],
        stdout=follower,
        check=True,
        env={**shell, "TERM": "xterm-256color", **environment},
    )
    os.close(follower)
    text = b""
    with contextlib.suppress(OSError):  # that is how a terminal ends whose other side is closed
        while part := os.read(leader, 65536):
            text += part
    os.close(leader)
    return text.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("rate", [["--mtbf", "14h"], ["--rate", "llama3"]])
def test_an_answer_from_options_imports_nothing_heavy(rate: list[str]) -> None:
    code = (
        "import sys; from ckptbench.cli.verbs import run; run(sys.argv[1:]);"
        f"sys.exit(str([name for name in {HEAVY} if name in sys.modules] or 0))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *BOTH[:3], *rate, *BOTH[5:]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "blocking" in done.stdout
    assert done.stderr.strip() == "0"


@pytest.mark.parametrize(
    ("package", "options"),
    [("click", BOTH), ("numpy", BOTH), ("pandas", ["decide", "--mtbf", "1h", "--costs", COSTS]), ("vl_convert", ["page", "never.html"])],
)  # fmt: skip
def test_a_missing_package_is_one_line_with_the_command_that_installs_it(
    package: str, options: list[str]
) -> None:
    done = ended(options, before=f"import sys; sys.modules[{package!r}] = None;")
    assert done.returncode == 1
    assert done.stderr == f"Error: the package {package} is not installed: {INSTALL}\n"


def test_the_extra_installs_all_packages_whose_lack_is_told() -> None:
    import tomllib

    root = Path(__file__).resolve().parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    declared = {name.partition(">")[0] for name in project["optional-dependencies"]["decide"]}
    names = {"yaml": "pyyaml", "vl_convert": "vl-convert-python"}
    assert {names.get(name, name) for name in EXTRA} == declared


def printed(arguments: list[str], **environment: str) -> str:
    done = ended(arguments, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def ended(
    arguments: list[str], *, before: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """The whole process, as the console script starts it."""
    code = f"{before}from ckptbench.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def test_no_setting_follows_from_a_bound(capsys: pytest.CaptureFixture[str]) -> None:
    """A program that is told so many steps saves no less often where failures are rarer."""
    seen = ["decide", "--gpus", "256", "--failures", "0", "--days", "7", *CASE[5:], "--blocking", "60s"]  # fmt: skip
    (told,) = json.loads(said([*seen, "--json"], capsys))["strategies"]
    assert told["bound"]
    settings = said([*seen, "--save-steps"], capsys)
    assert settings.startswith(
        f"blocking: no failure was seen, so there is no setting to copy: save at least {told['steps']:,} steps ("
    )
    assert settings.endswith(" apart\n")


def test_restarts_make_no_other_interval_fine(capsys: pytest.CaptureFixture[str]) -> None:
    """They come at any interval; and where the best one loses more than half, none is fine."""

    def of(restart: str, mtbf: str) -> list[str]:
        return ["decide", "--gpus", "256", "--mtbf", mtbf, "--step", "2.5s", "--restart", restart, "--blocking", "60s"]  # fmt: skip

    assert "(fine: 21 - 76 min)" in said(of("2h", "14h"), capsys)
    assert "(fine: 11 - 31 min)" in said(of("30min", "3.1h"), capsys)
    assert "fine" not in said(of("15h", "14h"), capsys)
    (told,) = json.loads(said([*of("15h", "14h"), "--json"], capsys))["strategies"]
    assert told["loses"] > 0.5
    assert (told["fine_from_steps"], told["fine_to_steps"]) == (None, None)


def test_what_a_worse_strategy_costs_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Not that it saves 0."""
    later = [*CASE, "--blocking", "60s", "--async", "3s+5h", "--now", "2h"]
    text = said(later, capsys)
    assert re.search(r"^async .* loses 42 % +costs 2,069 more  ", text, re.MULTILINE)
    assert "saves 0" not in text
    _, worse = json.loads(said([*later, "--json"], capsys))["strategies"]
    assert round(worse["saves_gpu_hours_a_day"]) == -2069
    best = ["--blocking", "60s", "--now", "968 steps"]
    assert "saves 0 GPU-hours a day" in said([*CASE, *best], capsys)


def test_other_states_of_jobs_are_counted_by_an_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "jobs.txt"
    log.write_text(
        "JobID|State|Start|End|Elapsed|AllocTRES\n"
        "1|PREEMPTED|2026-01-01T00:00:00|2026-01-03T00:00:00|2-00:00:00|gres/gpu=64\n"
        "2|COMPLETED|2026-01-04T00:00:00|2026-01-06T00:00:00|2-00:00:00|gres/gpu=64\n"
    )
    jobs = ["--log", str(log)]
    given = ["decide", "--gpus", "64", *jobs, *BOTH[5:]]
    of_costs = ["decide", "--costs", COSTS, *jobs]
    for each in (given, of_costs):
        text = " ".join(said(each, capsys).split())
        assert "Not counted: 1 PREEMPTED; if your training restarts" in text
        assert "add --count PREEMPTED" in text
        assert "Not counted" in " ".join(json.loads(said([*each, "--json"], capsys))["remarks"])
        assert "Not counted" not in said([*each, "--count", "preempted"], capsys)
        assert AS_SUDDEN in " ".join(
            said([*each, "--count", "preempted", "--explain"], capsys).split()
        )
    assert "1 failure in" in said([*given, "--count", "PREEMPTED, TIMEOUT"], capsys)
    fewer = ["decide", "--gpus", "8", *jobs, *BOTH[5:], "--count", "PREEMPTED"]
    per_job = "1 PREEMPTED: counted per job, one in 96 h for your jobs of 64 GPUs, and just as often on 8 GPUs."
    assert per_job in " ".join(said(fewer, capsys).split())
    assert "on 1 GPU." in said([*fewer[:2], "1", *fewer[3:]], capsys)
    hours = 1 / (3600 * json.loads(said([*fewer, "--json"], capsys))["failures_per_s"])
    assert hours == pytest.approx(96, rel=0.01)
    described = tmp_path / "rate.yaml"
    described.write_text("title: a\ncounts: b\nlog: jobs.txt\nstates: [NODE_FAIL, PREEMPTED]\n")  # fmt: skip
    states = "states: [NODE_FAIL, PREEMPTED]"
    limited = tmp_path / "limited.yaml"
    limited.write_text(described.read_text().replace(states, "states: [NODE_FAIL, PREEMPTED, TIMEOUT]"))  # fmt: skip
    for way in ("--log", "--rate"):
        with pytest.raises(DataError, match="states has TIMEOUT, and --limit counts these ends: leave out one of them"):  # fmt: skip
            run([*fewer[:3], way, str(limited), *BOTH[5:], "--limit", "24h"])
        by_file = [*fewer[:3], way, str(described), *BOTH[5:]]
        assert per_job in " ".join(said(by_file, capsys).split())
        same = json.loads(said([*by_file, "--json"], capsys))["failures_per_s"]
        assert 1 / (3600 * same) == pytest.approx(hours)
    log.write_text(log.read_text().replace("COMPLETED", "NODE_FAIL"))
    hours = 1 / (3600 * json.loads(said([*fewer, "--json"], capsys))["failures_per_s"])
    assert hours == pytest.approx(1 / (1 / 96 + 8 / 64 / 96), rel=0.01), "a node's failures grow with the GPUs"  # fmt: skip
    log.write_text(log.read_text().replace("NODE_FAIL", "COMPLETED"))
    assert "counted per job" not in said([*given, "--count", "PREEMPTED"], capsys)
    assert "'NODEFAIL' is not the state of an ended job" in refused(
        [*given, "--count", "NODEFAIL"], capsys
    )
    assert "--count: give --log JOBS too" in refused([*BOTH, "--count", "TIMEOUT"], capsys)
    with pytest.raises(DataError, match="a list of failures has no states: leave out --count"):
        run([*BOTH[:3], "--log", LOG, "--count", "TIMEOUT", *BOTH[5:]])


def test_errors_are_wrapped_on_a_terminal_and_whole_in_a_log() -> None:
    words = ["decide", "--gpus", "256", "--rate", "llama4", "--step", "2s", "--blocking", "1min", "--restart", "8min"]  # fmt: skip
    command = [sys.executable, "-c", "from ckptbench.cli.main import main; main()"]
    for more in (words, [*words, "--gpus", "256"]):
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
        assert subprocess.run([*command, *more], stderr=follower, check=False).returncode in {1, 2}
        os.close(follower)
        lines = os.read(leader, 10_000).decode().splitlines()
        os.close(leader)
        assert all(len(line) <= 60 for line in lines)
        assert lines[0].startswith("Error: ")
        assert all(line.startswith("  ") for line in lines[1:])
        (whole,) = subprocess.run([*command, *more], capture_output=True, text=True, check=False).stderr.splitlines()  # fmt: skip
        assert whole.split() == " ".join(lines).split()
    assert len(whole) < 60, "given twice"

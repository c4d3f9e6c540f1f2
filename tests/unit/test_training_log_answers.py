"""`ckptbench decide --training-log`: the answer from one log or several, and what a log does not tell."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from training_logs import (
    QUIET,
    STEP,
    Made,
    bars,
    facts,
    megatron,
    nanogpt,
    state,
    torchtitan,
    written,
)

from ckptbench.cli.verbs import WRONG_USE, run
from ckptbench.common.errors import DataError
from ckptbench.decide.training_log.facts import facts_of
from ckptbench.decide.training_log.joined import read_logs
from ckptbench.decide.training_log.reader import read_log


def said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    status = run(["decide", *arguments])
    captured = capsys.readouterr()
    assert (status, captured.err) == (0, "")
    return captured.out


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    status = run(["decide", *arguments])
    captured = capsys.readouterr()
    assert (status, captured.out) == (WRONG_USE, "")
    return captured.err


def test_a_log_is_answered_by_the_interval_to_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = str(written(tmp_path, megatron(Made())))
    lines = said(["--training-log", log, "--restart", "90s", "--mtbf", "14h"], capsys).splitlines()
    assert re.match(
        r"train.log: 64 GPUs, step 2.\d s, save 6\d s, restart 90 s, MTBF 14 h$", lines[0]
    )
    assert re.match(r"now +8.\d min +loses 1\d %", lines[2])
    assert re.match(r"as logged +4\d min", lines[3])
    assert lines[5] == "Save every 1,000 steps (41 min): --save-interval 1000"
    assert lines[6].startswith("At 1/3 or 3 times the failures: as logged ")
    assert len(lines) == 7
    assert max(map(len, lines)) <= 80
    explained = said(
        ["--training-log", log, "--restart", "90s", "--mtbf", "14h", "--explain"], capsys
    )
    read = "Read train.log as Megatron-LM: 2,000 steps, 10 saves."
    assert read in explained
    assert "From the log: a step 2.4" in explained
    assert "A log shows neither the full slowdown during asynchronous saves " in explained
    told = json.loads(
        said(["--training-log", log, "--restart", "90s", "--mtbf", "14h", "--json"], capsys)
    )
    (choice,) = told["strategies"]
    assert choice["fine_from_steps"] < 1000 < choice["fine_to_steps"]
    assert choice["steps_lo"] < choice["steps"] < choice["steps_hi"]
    assert choice["now"]["steps"] == 200
    assert (told["gpus"], told["remarks"][1]) == (64, read)
    assert choice["name"] == choice["now"]["name"] == "as logged"


def test_what_steps_lose_beside_a_save_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At least the log of a save that took 0.02 s must not be answered as if it cost no more."""
    made = Made(step_s=1.4, stall_s=0.02, beside_s=1.3, finished_s=40.0, noise=0.01)
    log = str(written(tmp_path, torchtitan(made)))
    case = ["--training-log", log, "--restart", "90s", "--mtbf", "14h"]
    assert "then slower steps up to the next line: 1.3" in " ".join(
        said([*case, "--explain"], capsys).split()
    )
    (choice,) = json.loads(said([*case, "--json"], capsys))["strategies"]
    assert choice["interval_s"] == pytest.approx((2 * 14 * 3600 * 1.32) ** 0.5, rel=0.1)


def test_the_log_and_the_options_that_say_the_same_agree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = str(written(tmp_path, megatron(Made(noise=0.0))))
    of_log = json.loads(
        said(["--training-log", log, "--restart", "90s", "--mtbf", "14h", "--json"], capsys)
    )
    alone = ["--gpus", "64", "--step", "2.5s", "--blocking", "60s", "--restart", "90s", "--now", "200 steps"]  # fmt: skip
    of_options = json.loads(said([*alone, "--mtbf", "14h", "--json"], capsys))
    for key in ("steps", "loses", "saves_gpu_hours_a_day"):
        assert of_log["strategies"][0][key] == pytest.approx(of_options["strategies"][0][key], rel=1e-3)  # fmt: skip


def test_an_option_wins_over_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = str(written(tmp_path, torchtitan(Made())))
    own = ["--gpus", "512", "--step", "1s", "--async", "3s+90s", "--restart", "8min", "--now", "1h"]
    of_log = json.loads(said(["--training-log", log, "--mtbf", "14h", *own, "--json"], capsys))
    of_options = json.loads(said([*own, "--mtbf", "14h", "--json"], capsys))
    assert of_log["gpus"] == 512  # of which the log has fewer
    for key in ("steps", "loses"):
        assert of_log["strategies"][0][key] == pytest.approx(of_options["strategies"][0][key])
    assert of_log["strategies"][0]["now"]["steps"] == 3600
    own[own.index("--async") : own.index("--async") + 2] = ["--blocking", "60s"]
    text = said(["--training-log", log, "--rate", "llama3", *own, "--explain"], capsys)
    assert "All numbers come from the options." in text
    assert "A log does not tell" not in text
    assert "512 GPUs" in text
    assert "Projected: " in text  # from 64


def test_the_evaluation_in_a_save_is_told_until_an_option_says_what_the_save_costs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = str(written(tmp_path, nanogpt(Made(stall_s=8.0), eval_s=27.0)))
    case = ["--training-log", log, "--mtbf", "5h", "--gpus", "8", "--restart", "5min"]
    words = "include the evaluation before each save: give --blocking"
    assert words in said(case, capsys)
    storage = ["--state", "80GB", "--bandwidth", "10GB/s"]
    alone = said([*case, "--blocking", "8s"], capsys)
    assert words not in alone
    assert said([*case, *storage], capsys) == alone


@pytest.mark.parametrize(
    ("own", "steps"),
    [({"eval_steps": 700}, 700), ({"save_steps": 300}, 900), ({"eval_steps": 4000, "save_steps": 4000}, 1000)],
)  # fmt: skip
def test_the_setting_is_a_multiple_of_what_the_log_says(
    own: dict[str, int], steps: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Transformers demands one of the steps between evaluations for `load_best_model_at_end`. Where none is fine, it is a round number."""
    log = str(written(tmp_path, state(**own)))
    case = ["--training-log", log, "--mtbf", "5h", "--gpus", "8", "--step", "1.5s", "--blocking", "1min", "--restart", "5min"]  # fmt: skip
    assert re.search(
        rf"Save every {steps:,} steps \(.* min\): save_steps={steps}\n", said(case, capsys)
    )
    copied = said([*case, "--save-steps"], capsys)
    assert f" save_steps={steps}\n" in copied
    assert "torchtitan" not in copied
    later = [*case[:-4], "--async", "3s+90s", *case[-2:]]
    assert "save_steps" not in said(later, capsys) + said([*later, "--save-steps"], capsys)


def test_what_a_log_does_not_tell_is_asked_for_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = str(written(tmp_path, state(log_history=[{"step": 10}], save_steps=0)))
    assert "\n  --mtbf" not in refused(["--training-log", log, "--mtbf", "5h"], capsys)
    text = refused(["--training-log", log], capsys)
    assert "as a state of Hugging Face's Trainer: 1 step, 0 saves. Still missing:" in text
    assert (
        "\n  --mtbf or --gpu-mtbf or --rate or --log or --failures: how often failures come" in text
    )
    assert "--blocking 2min; the log shows no save" in text
    lines = written(tmp_path, ["step=1 loss=2", "saving", "step=2 loss=2"], "no-times.log")
    case = ["--training-log", str(lines), "--log-pattern", r"step=(?P<step>\d+)", "--log-pattern", "(?P<save>saving)", "--mtbf", "5h"]  # fmt: skip
    assert "--blocking 2min; the log does not say how long a save takes" in refused(case, capsys)
    for option in ("--gpus", "--step", "--blocking or --async", "--restart"):
        assert f"\n  {option}: " in text
    rest = ["--gpus", "8", "--step", "2s", "--blocking", "2min", "--restart", "5min"]
    assert "save_steps=" in said(["--training-log", log, "--mtbf", "5h", *rest], capsys)


def test_a_log_without_saves_is_compared_with_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The best interval is that of the same numbers as options, and of a log whose interval is said."""
    page = tmp_path / "page.html"
    log = written(tmp_path, [f"step={step} t=2500" for step in range(1, 50)])
    rest = ["--mtbf", "14h", "--gpus", "256", "--blocking", "60s", "--restart", "8min"]
    case = ["--training-log", str(log), "--log-pattern", STEP, *rest]
    text = said([*case, "--html", str(page)], capsys)
    assert " saved" not in text
    assert "never" not in text
    assert page.read_text().count('["now","') == 2  # those of the examples
    (alone,), (used,) = (json.loads(said([*case, *now, "--json"], capsys))["strategies"] for now in ([], ["--now", "2h"]))  # fmt: skip
    assert (alone["now"], alone["saves_gpu_hours_a_day"]) == (None, None)
    assert (alone["steps"], used["now"]["steps"]) == (used["steps"], 2880) == (968, 2880)


def test_a_state_says_that_it_may_be_wrong_for_a_resumed_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its runtime is that of the last start, and where that began is not in it."""
    log = str(written(tmp_path, state()))
    case = ["--training-log", log, "--mtbf", "5h", "--gpus", "8", "--blocking", "2min", "--restart", "5min"]  # fmt: skip
    words = "too short if it was resumed: give --step."
    assert words in " ".join(said(case, capsys).split())
    assert words not in " ".join(said([*case, "--step", "2s"], capsys).split())


def test_a_training_log_is_one_source_of_costs(capsys: pytest.CaptureFixture[str]) -> None:
    here = str(Path(__file__))
    both = ["--training-log", here, "--costs", here, "--mtbf", "5h"]
    assert "--costs and --training-log: give one of them" in refused(both, capsys)
    alone = ["--log-pattern", "x", "--mtbf", "5h", "--costs", here]
    assert "--log-pattern: give --training-log too" in refused(alone, capsys)


NOT_NEEDED = "No save is needed against failures: the best interval, "
SAVE_AT_THE_END = "Save at the end, before the time limit."


@pytest.mark.parametrize("program", [megatron, bars])
def test_a_training_shorter_than_the_interval_needs_no_save_against_failures(
    program: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its log says how many steps there are to be. It is not told to save every 37,257 of its 4,000 steps."""
    log = str(written(tmp_path, program(Made(step_s=1.2, steps=4000, interval=500, gpus=8))))
    case = ["--training-log", log, "--gpus", "8", "--gpu-mtbf", "50000h", "--restart", "5min"]
    told = json.loads(said([*case, "--json"], capsys))
    steps = told["strategies"][0]["steps"]
    assert steps > told["training_steps"] == 4000
    sentence = f"{NOT_NEEDED}{steps:,} steps, is not shorter than the training, 4,000 steps. {SAVE_AT_THE_END}"  # fmt: skip
    assert told["remarks"][0] == sentence
    text = " ".join(said(case, capsys).split())
    assert sentence in text
    assert "Save every" not in text
    settings = said([*case, "--save-steps"], capsys)
    assert SAVE_AT_THE_END in settings
    assert "save_steps=" not in settings
    often = json.loads(said([*case[:4], "--mtbf", "1h", *case[6:], "--json"], capsys))
    assert often["strategies"][0]["steps"] < 4000
    assert often["remarks"][0].startswith("Save as now, every 500 steps")


def test_a_setting_says_what_switches_asynchronous_saves_on_and_none_follows_from_a_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The interval alone would be worse than what is lost today, as its saves would block."""
    log = str(written(tmp_path, torchtitan(Made(noise=0.0), "0.2")))
    case = ["--training-log", log, "--restart", "8min", "--async", "3s+90s"]
    text = " ".join(said([*case, "--mtbf", "14h"], capsys).split())
    assert "with async: --checkpoint.interval=200 --checkpoint.async_mode=async" in text
    text = " ".join(said([*case, "--failures", "0", "--days", "7"], capsys).split())
    assert "async: no failure was seen, so there is no setting to copy: save at least " in text
    once = str(written(tmp_path, torchtitan(Made(noise=0.0, interval=300, steps=400), "0.2")))
    alone = ["--training-log", once, *case[2:4], "--mtbf", "14h"]
    few = said([*alone[:-2], "--failures", "3", "--days", "7"], capsys)
    assert (
        "\nOnly 3 failures: the true rate may be 0.21 to 2.9 times this (brackets: 95 %).\n" in few
    )
    (now,) = json.loads(said([*alone, "--json"], capsys))["strategies"]
    today = [*alone, "--now", f"{now['fine_to_steps']} steps"]
    assert f"Save as now, every {now['fine_to_steps']:,} steps: that is fine." in said(
        today, capsys
    )
    assert run(["decide", *alone, "--save-steps"]) == 0
    assert "(best: " not in capsys.readouterr().out  # known to more digits than matter
    asked = "How often you save today is not in the log: give --now."
    assert asked in said(alone, capsys)
    assert asked not in said([*alone, "--now", "2h"], capsys)
    assert "--checkpoint" not in text


def test_how_long_a_training_is_comes_from_its_log(tmp_path: Path) -> None:
    """And from no bar of one epoch."""

    def bar(name: str, steps: int, total: int) -> str:
        return "".join(f"\r{name}{step}%|## | {step}/{total} [00:{step:02}<00:40, 1.00s/it, loss=2.1]" for step in range(1, steps + 1))  # fmt: skip

    titan = torchtitan(Made())
    assert facts(tmp_path, titan).planned is None
    total = "Trainer is initialized with sequence length 8192, total steps 10000 (warmup 200)"
    assert facts(tmp_path, [total, *titan]).planned == 10_000
    assert facts(tmp_path, megatron(Made(steps=3000))).planned == 3000
    assert facts(tmp_path, bar("", 30, 40)).planned == 40
    assert facts(tmp_path, bar("Epoch 1: ", 30, 40)).planned is None
    assert facts(tmp_path, bar("", 40, 40) + bar("", 10, 40)).planned is None


def test_an_asynchronous_strategy_stands_beside_the_saves_of_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both against what is lost today: by the log's own saves at its interval."""
    log = str(written(tmp_path, torchtitan(Made(noise=0.0), "0.2")))
    case = ["--mtbf", "14h", "--restart", "8min"]
    given = ["--training-log", log, *case, "--async", "3s+90s"]
    told = {each["name"]: each for each in json.loads(said([*given, "--json"], capsys))["strategies"]}  # fmt: skip
    options = ["--gpus", "64", "--step", "2.5s", "--blocking", "60s", "--async", "3s+90s", "--now", "200 steps"]  # fmt: skip
    alone = {each["name"]: each for each in json.loads(said([*case, *options, "--json"], capsys))["strategies"]}  # fmt: skip
    assert told.keys() == {"as logged", "async"}
    for name, other in (("as logged", "blocking"), ("async", "async")):
        for key in ("steps", "loses", "saves_gpu_hours_a_day"):
            assert told[name][key] == pytest.approx(alone[other][key], rel=0.01)
        assert told[name]["now"]["name"] == "as logged"
        assert told[name]["now"]["loses"] == pytest.approx(alone[other]["now"]["loses"], rel=0.01)
    text = " ".join(said(given, capsys).split())
    assert "Now: every 200 steps, as logged; savings are against that." in text
    explained = " ".join(said([*given, "--explain"], capsys).split())
    assert "Shown to be best (95 % confidence): async, if async costs what you say." in explained
    assert "give --async" not in text
    assert "If the log's saves are asynchronous, " in text  # as that version does not say it


def test_losses_are_at_least_these_where_asynchronous_saves_have_no_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """torchtitan's Staging lines say that a save is asynchronous. With the end as an option all is known."""
    lines = torchtitan(Made(stall_s=3.0, finished_s=90.0))
    log = str(written(tmp_path, [line for line in lines if "background process" not in line]))
    case = ["--training-log", log, "--mtbf", "14h", "--restart", "8min"]
    text = " ".join(said(case, capsys).split())
    assert text.count("at least ") >= 2
    assert "or take these losses as a minimum." in text
    assert "If saves are" not in text
    (told,) = json.loads(said([*case, "--json"], capsys))["strategies"]
    assert told["at_least"] is told["now"]["at_least"] is True
    (known,) = json.loads(said([*case, "--async", "3s+90s", "--json"], capsys))["strategies"]
    assert known["at_least"] is known["now"]["at_least"] is False
    assert known["loses"] > told["loses"]
    assert "at least" not in said([*case, "--async", "3s+90s"], capsys)


def starts(folder: Path) -> list[Path]:
    """Logs of two starts, of which the later comes first by name."""
    lines = torchtitan(Made(**QUIET, steps=900, killed_at=(550,)))
    later = next(place for place in range(1, len(lines)) if "Starting job" in lines[place])
    return [written(folder, lines[later:], "a.log"), written(folder, lines[:later], "b.log")]


def decided(*options: object) -> list[str]:
    return ["decide", "--mtbf", "14h", "--restart", "8min", *map(str, options)]


def test_several_logs_are_joined_in_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    """In whatever order they are named: as one file has it in which they lie one behind the other."""
    later, first = starts(tmp_path)
    whole = written(tmp_path, first.read_text() + later.read_text(), "all.log")
    for order in ((later, first), (first, later)):
        assert facts_of(read_logs(order)[1]) == facts_of(read_log(whole))
    assert run(decided("--training-log", later, "--training-log", first, "--explain")) == 0
    assert "Read b.log, a.log as torchtitan: " in capsys.readouterr().out


def test_steps_that_no_log_has_are_no_interval(tmp_path: Path) -> None:
    """The log of the second of three starts is missing: it may have had saves."""
    lines = torchtitan(Made(**QUIET, steps=1650, killed_at=(150, 1550)))
    begin, end = [place for place, line in enumerate(lines) if "Starting job" in line][1:]
    first, third = (
        written(tmp_path, lines[:begin], "1.log"),
        written(tmp_path, lines[end:], "3.log"),
    )
    second = written(tmp_path, lines[begin:end], "2.log")
    assert facts_of(read_logs([first, second, third])[1]).interval == 100
    facts = facts_of(read_logs([first, third])[1])
    assert (facts.saves, facts.interval) == (2, None)


def test_what_one_of_several_logs_says_is_known(tmp_path: Path) -> None:
    """Here the first alone says how long the training is, and that saves are asynchronous."""
    later, first = starts(tmp_path)
    told = [written(tmp_path, [line, *first.read_text().splitlines()], name) for name, line in (("total.log", "total steps 10000 (warmup 200)"), ("async.log", "Finished staging the checkpoint in 3.00 seconds."))]  # fmt: skip
    assert facts_of(read_logs([told[0], later])[1]).planned == 10_000
    assert facts_of(read_logs([told[1], later])[1]).is_async
    plain = facts_of(read_logs([first, later])[1])
    assert (plain.planned, plain.is_async) == (None, False)


def test_logs_without_dates_are_in_the_order_of_their_steps(tmp_path: Path) -> None:
    paths = [written(tmp_path, [f"step={step} t=2500" for step in steps], f"{steps[0]}.log") for steps in (range(501, 900), range(1, 600))]  # fmt: skip
    order, log = read_logs(paths, (STEP,))
    assert [path.name for path in order] == ["1.log", "501.log"]
    found = facts_of(log)
    assert (found.steps, found.again) == (899, 99)


def test_logs_that_are_not_one_after_the_other_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    later, first = starts(tmp_path)
    copy = written(tmp_path, first.read_text(), "rank1.log")
    other = written(tmp_path, nanogpt(Made(**QUIET)), "gpt.log")
    with pytest.raises(DataError, match=r"b.log and .*rank1.log are of the same time: name one"):
        read_logs([first, copy])
    with pytest.raises(DataError, match=r"is a log of .*: name logs of one training"):
        read_logs([first, other])
    assert run(decided("--training-log", later, "--training-log", later)) == WRONG_USE
    assert "--training-log: one file is given twice" in capsys.readouterr().err


def test_a_state_in_more_parts_than_gpus_of_the_log_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = ["--state", "98GB", "--rank-bandwidth", "1GB/s", "--shared-by", 65]
    assert run(decided("--training-log", starts(tmp_path)[0], *storage)) == WRONG_USE
    assert "--shared-by is 65: use at most the 64 of --gpus" in capsys.readouterr().err

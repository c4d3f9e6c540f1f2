"""What a log of a training tells: made logs of every form give back their truth; bad ones get one clear error."""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Callable
from dataclasses import MISSING, fields
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest
from training_logs import (
    QUIET,
    STEP,
    Made,
    bar,
    bars,
    csv_rows,
    facts,
    megatron,
    nanogpt,
    own_lines,
    state,
    torchtitan,
    written,
)

from ckptbench.cli.log_costs import costs_of_log
from ckptbench.cli.options import Options
from ckptbench.common.errors import ConfigError, DataError
from ckptbench.decide.training_log.files import STATE
from ckptbench.decide.training_log.forms import EVALUATED
from ckptbench.decide.training_log.reader import read_log

MIDDLE = 0.03
"""How far the mean of a few noisy times may be from their truth."""


SAVED = r"checkpoint took (?P<save_s>[\d.]+)"
SAVING = (r"step (?P<step>\d+)", "(?P<save>saving)")
TIMED = (r"(?P<time>\S+) step (?P<step>\d+)", "(?P<save>saving)")
TRAINER = {"step_s": 0.6, "stall_s": 40.0, "steps": 1500, "interval": 100, "noise": 0.02}
ENDS = {
    "Finished saving the checkpoint of step 400 in 61.20 seconds.": False,
    "Finished saving the checkpoint (or staging if async is enabled) in 61.20 seconds.": True,
}
"""Other wordings of torchtitan's, with whether such saves may go on beside the training."""
DATA_BAR = "".join(f"\rMap (num_proc=8): {part}%|#| {part * 4500}/450000 [{part // 2}:{part % 2 * 3}0:00<01:10, 214.20 examples/s]" for part in range(1, 101))  # fmt: skip
"""Preparing data may take longer than training."""


def joined(made: Made) -> str:
    """As NeMo's launcher prints it: the notes on a save, and its timer, in one line; labels of srun stand before all."""
    return "\n".join(f"1: {line}" for line in megatron(made)).replace("(ms):\n1:     save", "(ms): save")  # fmt: skip


def with_saves_in_means(made: Made) -> list[str]:
    """Old versions of Megatron-LM count a save into the steps of the next line."""
    lines, save_ms = megatron(made, "2.0"), 0.0
    for at, line in enumerate(lines):
        if "save checkpoint:" in line:
            save_ms = float(line.split()[-1])
        elif "(ms): " in line:
            before, told_ms, after = re.split(r"(?<=\(ms\): )([\d.]+)", line)
            lines[at] = f"{before}{float(told_ms) + save_ms / made.stride:.1f}{after}"
            save_ms = 0.0
    return lines


def twice(made: Made) -> list[str]:
    """From the beginning again, days later."""
    lines = torchtitan(made)
    made.now_s += 2e5
    return [*lines, *torchtitan(made)]


def without_the_middle(lines: list[str]) -> list[str]:
    return [*lines[: len(lines) // 3], *lines[len(lines) * 2 // 3 :]]


# fmt: off
CASES: dict[str, tuple[Callable[[Made], Any], dict[str, Any], dict[str, Any], tuple[str, ...]]] = {
    # What is printed, of which training, what else is known of it, and by which expressions. Without a known stall: it is the truth.
    **{f"megatron {version}": (partial(megatron, version=version), {}, {"name": "Megatron-LM", "steps": 2000, "saves": 10, "gpus": 64, "background": False}, ()) for version in ("main", "core-0.12", "core-0.5", "2.0")},
    "megatron, asynchronous": (megatron, {"stall_s": 2.0, "finished_s": 90.0}, {"background": True, "durable_s": pytest.approx(90.0, rel=MIDDLE)}, ()),
    "megatron, joined lines": (joined, {}, {"saves": 10}, ()),
    "megatron, saves in means": (with_saves_in_means, {"stride": 100}, {"saves": 10}, ()),
    **{f"torchtitan {version} {end_s}": (partial(torchtitan, version=version), {"gpus": 16, "stall_s": 5.0, "finished_s": end_s}, {"name": "torchtitan", "steps": 2000, "saves": 10, "gpus": 16, "background": version == "0.2" or end_s is not None, "durable_s": None}, ()) for version in ("main", "0.2") for end_s in (None, 40.0)},
    **{end: (lambda made, end=end: [re.sub("Finished .*", end, line) for line in torchtitan(made)], {"stall_s": 61.2}, {"background": background}, ()) for end, background in ENDS.items()},
    **{f"{program.__name__}, killed, {stride}": (program, {"killed_at": (475, 1103, 1290), "stride": stride}, {"saves": 10, "steps": pytest.approx(2000, abs=5 * stride), "again": again}, ()) for program in (megatron, torchtitan) for stride, again in ((10, 70 + 100 + 90), (100, 100))},
    "a second training": (twice, {"steps": 600}, {"steps": 1200, "again": 0, "saves": 6}, ()),
    **{f"saves every {interval}": (torchtitan, {"stall_s": 20.0, "interval": interval}, {"saves": saves}, ()) for interval, saves in ((3, 666), (5, 400), (77, 25))},
    "a part is missing": (lambda made: without_the_middle(torchtitan(made)), {}, {"saves": 7}, ()),
    "gzip": (lambda made: gzip.compress("\n".join(torchtitan(made)).encode()), {}, {}, ()),
    "crlf": (lambda made: "\r\n".join(torchtitan(made)), {}, {}, ()),
    "torn": (lambda made: "\n".join(torchtitan(made)).encode()[:-37] + b"\xe2\x96", {}, {}, ()),
    **{f"nanogpt, stamps {stamps}": (partial(nanogpt, eval_s=27.0, stamps=stamps), {"stall_s": 8.0}, {"name": "nanoGPT", "steps": 2001, "saves": 10, "stall": 35.0, "aside": EVALUATED}, ()) for stamps in (False, True)},
    **{f"bars, evaluation of {total}": (lambda made, total=total: bars(made, eval_s=25.0 if total else 0.0, eval_total=total), TRAINER, {"steps": 1500, "saves": 15, "gpus": None, "aside": ""}, ()) for total in (0, 20, 2000)},
    "bars, evaluation of unknown time": (lambda made: bars(made, eval_s=25.0, eval_total=20).replace("eval_runtime", "seconds"), TRAINER, {"stall": 65.0, "aside": EVALUATED}, ()),
    **{f"bars, {instead!r} for returns": (lambda made, instead=instead: bars(made).replace("\r", instead), TRAINER, {}, ()) for instead in ("", "#015")},
    "bars, saves without a line": (lambda made: bars(made).replace("Saving", ""), {**QUIET, "step_s": 1.3, "steps": 1000}, {"stall": None}, ()),
    "bars, resumed": (bars, {**TRAINER, "killed_at": (742,)}, {"steps": 1500, "again": 42}, ()),
    "bars, after one of data": (lambda made: DATA_BAR + "\n" + bars(made), TRAINER, {"steps": 1500}, ()),
    "torchtitan, after a bar": (lambda made: DATA_BAR + "\n" + "\n".join(torchtitan(made)), {}, {"name": "torchtitan", "steps": 2000}, ()),
    "lightning": (csv_rows, {"noise": 0.02}, {"stall": None, "steps": 2000, "saves": 0, "interval": None}, ()),
    "rows with dates": (lambda made: ["time,step,loss", *own_lines(made, "{stamp:.19},{step},0.5", "")], {**QUIET, "step_s": 1.3}, {"stall": None}, ()),
    **{f"own lines, {how}": (lambda made, end=end: end.join(own_lines(made, "step={step} t={ms:.1f} loss=2", "", "checkpoint took {took_s:.2f}")), {"stride": 1}, {"steps": 2000, "saves": 10}, (STEP, SAVED)) for how, end in (("apart", "\n"), ("joined", " | "))},
    "several durations between lines": (partial(own_lines, save="", end="checkpoint took {took_s:.2f}"), {"interval": 5, "stall_s": 20.0}, {"saves": 400}, (SAVING[0], SAVED)),
    **{f"times, {form}": (partial(own_lines, step=form + " step {step}"), {"stride": 1, "noise": 0.02}, {"saves": 10}, patterns) for form, patterns in (("{stamp}", SAVING), ("{slashes}", SAVING), ("{now_s:.3f}", TIMED), ("{clock}", TIMED))},
    **{f"saves marked at the {at}": (partial(own_lines, **lines), {"noise": 0.02}, {"saves": 10}, SAVING) for at, lines in (("begin", {"save": "{stamp} saving"}), ("end", {"save": "", "end": "{stamp} saving"}))},
    # A tenth of a save is in it, or nothing, as the program does it: no time in the log tells which.
    "saves in means of several steps": (lambda made: [line for step in range(10, 2001, 10) for line in (f"step={step} t={8500 if step % 200 == 10 else 2500}", *["saving"][: step % 200 == 0])], {}, {"stall": None, "saves": 10}, (STEP, SAVING[1])),
}
# fmt: on


@pytest.mark.parametrize("case", CASES)
def test_a_made_log_gives_back_its_truth(case: str, tmp_path: Path) -> None:
    """The truth lies in the intervals, and these are narrow."""
    printed, own, known, patterns = CASES[case]
    made = Made(**own)
    found = facts(tmp_path, printed(made), *patterns)
    assert found.step is not None
    assert found.step.value == pytest.approx(made.step_s, rel=MIDDLE)
    assert found.step.interval.lo <= found.step.value <= found.step.interval.hi
    stall_s = known.get("stall", made.stall_s)
    if stall_s is None:
        assert found.stall is None
    else:
        assert found.stall is not None
        assert found.stall.value == pytest.approx(stall_s, rel=MIDDLE)
        assert found.stall.interval.lo < stall_s < found.stall.interval.hi
        assert found.interval == made.interval
    told = {name: getattr(found, name) for name in known if name != "stall"}
    assert told == {name: value for name, value in known.items() if name != "stall"}


@pytest.mark.parametrize(
    "content",
    [
        ["epoch,step,train_loss", "0,49,0.6", "0,99,0.5"],
        own_lines(Made(interval=10, steps=200))[2:],  # a save of unknown duration between all lines
    ],
)
def test_no_step_is_told_where_no_time_is_of_steps_alone(
    content: list[str], tmp_path: Path
) -> None:
    found = facts(tmp_path, content, *(() if "epoch" in content[0] else SAVING))
    assert (found.step, found.stall) == (None, None)


@pytest.mark.parametrize(
    ("interval", "end", "saves"),
    [
        # The Trainer prints its last bar once more after the only save of a short training.
        (100, "100%|#| 100/100 [04:58<00:00,  2.27s/it]\n", 1),
        # The model that a Trainer saves at the end is no checkpoint.
        (10**6, "100%|██| 100/100 [04:10<00:00,  2.5s/it]\n[INFO|trainer.py:1935] 2026-09-09 18:20:55,954 >> Saving model checkpoint to ./models/mine\n", 0),
    ],
)  # fmt: skip
def test_what_follows_the_last_step(interval: int, end: str, saves: int, tmp_path: Path) -> None:
    made = Made(step_s=2.5, stall_s=48.0, steps=100, interval=interval, noise=0.02)
    found = facts(tmp_path, bars(made) + end)
    assert (found.steps, found.saves, found.interval) == (100, saves, None)
    assert (found.stall and found.stall.value) == (pytest.approx(48.0, rel=0.1) if saves else None)


def test_a_clock_may_begin_again_each_day(tmp_path: Path) -> None:
    lines = [
        f"{at // 3600 % 24:02}:{at // 60 % 60:02}:{at % 60:02} step {at // 100} loss 2.3"
        for at in range(80_000, 200_000, 100)
    ]
    found = facts(tmp_path, lines, TIMED[0])
    assert found.step is not None
    assert found.step.value == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("program", "own"),
    [
        (megatron, {}),
        (torchtitan, {"stall_s": 5.0}),
        (nanogpt, {}),
        (bars, {"step_s": 0.6, "interval": 170, "steps": 1700}),
    ],
)
def test_intervals_hold_the_truth(program: Any, own: dict[str, Any], tmp_path: Path) -> None:
    """95 % intervals of a step and a save, over 30 made trainings: at least 25, as in 997 of 1,000 such tests."""
    held = {"step": 0, "stall": 0}
    for seed in range(30):
        made = Made(seed=seed, **own)
        found = facts(tmp_path, program(made))
        for name, truth in (("step", made.step_s), ("stall", made.stall_s)):
            lo, hi = getattr(found, name).interval
            held[name] += lo <= truth <= hi
            assert hi < 1.2 * lo
    assert min(held.values()) >= 25


def test_how_much_steps_lose_beside_an_asynchronous_save_is_told_by_times(tmp_path: Path) -> None:
    """As far as the next line: 1.3 s beside a stall of 0.02 s."""
    made = Made(stall_s=0.02, beside_s=1.3, finished_s=40.0, noise=0.01)
    found = facts(tmp_path, torchtitan(made))
    assert found.slowdown is not None
    assert found.slowdown.value == pytest.approx(1.3, rel=0.2)
    gap = Made(stall_s=5.0, finished_s=40.0, steps=1000)
    lines = torchtitan(gap)
    assert facts(tmp_path, lines).slowdown is None
    gap.now_s += 5000  # suspended after its last save, which no line says
    gap.steps = 2000
    assert facts(tmp_path, [*lines, *torchtitan(gap)[-110:]]).slowdown is None
    assert facts(tmp_path, torchtitan(Made(beside_s=1.3, noise=0.01))).slowdown is None


def test_a_bar_of_epochs_around_one_of_steps_counts_no_steps(tmp_path: Path) -> None:
    """`for epoch in trange(3): for batch in tqdm(batches)`: the outer bar lasts longest."""
    made, text, passed_s = Made(noise=0.02), "", 0.0
    for epoch in range(3):
        began_s = passed_s
        for step in range(1, 501):
            passed_s += made.some(1.3)
            text += f"\rEpoch {epoch}: {step // 5}%|#| {step}/500 [{int(passed_s - began_s) // 60:02}:{int(passed_s - began_s) % 60:02}<02:01, 1.30s/it]"
        text += f"\rEpochs: {epoch * 33}%|#| {epoch + 1}/3 [{int(passed_s) // 60:02}:{int(passed_s) % 60:02}<20:00, 650.0s/it]"
    found = facts(tmp_path, text)
    assert found.step is not None
    assert found.step.value == pytest.approx(1.3, rel=MIDDLE)
    assert (found.steps, found.again) == (1500, 0)


def test_trainer_state_tells_the_interval_and_the_step_of_the_whole_run(tmp_path: Path) -> None:
    found = facts(tmp_path, state())
    assert found.step is not None
    assert found.step.value == pytest.approx(2.0)
    assert (found.interval, found.stall, found.aside) == (500, None, STATE.aside)
    unfinished = facts(tmp_path, state(log_history=[{"step": 10, "loss": 1.0}]))
    assert (unfinished.step, unfinished.interval) == (None, 500)
    by_epoch = facts(tmp_path, state(global_step=4321))
    assert by_epoch.interval is None


def test_lines_of_several_ranks_are_read_once(tmp_path: Path) -> None:
    one, other = torchtitan(Made()), torchtitan(Made(seed=2))
    mixed = [line for pair in zip(one, other, strict=True) for line in pair[:: random.Random(3).choice((1, -1))]]  # fmt: skip
    found = facts(tmp_path, mixed)
    assert (found.steps, found.saves, found.interval) == (2000, 10, 200)
    assert found.step is not None
    assert found.step.value == pytest.approx(2.5, rel=MIDDLE)
    assert found.stall is not None
    assert found.stall.value == pytest.approx(62.0, rel=MIDDLE)  # of the slower rank


PROGRAMS = {
    "megatron": "\n".join(megatron(Made(steps=400, killed_at=(250,)))),
    "titan": "\n".join(torchtitan(Made(steps=400))),
    "nanogpt": "\n".join(nanogpt(Made(steps=400), eval_s=5.0)),
    "bars": bars(Made(steps=400), eval_s=9.0, eval_total=3),
    "metrics": "\n".join(csv_rows(Made(steps=400))),
    "state": state(),
    "joined": bars(Made(steps=400)).replace("\r", ""),
}
NOTHING = {field.name: () if field.name in ("blocking", "asynchronous", "training_logs", "log_pattern", "tools") else None for field in fields(Options) if field.default is MISSING}  # fmt: skip
PIECES = ("", "\x00", "\n", "nan", "-1", "1e400", "9" * 30, "0", '"', "2026-99-99 99:99:99", "é", "\r", ",", "inf", "[", "{")  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_damaged_log_gives_an_answer_or_one_clear_error(program: str, tmp_path: Path) -> None:
    text = PROGRAMS[program]
    for seed in range(40):
        chosen = random.Random(seed)
        damaged = text
        for _ in range(chosen.choice((1, 5, 50))):
            at = chosen.randrange(len(damaged) + 1)
            end = at + chosen.choice((0, 1, 9, 300))
            damaged = damaged[:at] + chosen.choice(PIECES) + damaged[end:]
        path = written(tmp_path, damaged)
        asked = Options(**{**NOTHING, "training_logs": (path,)})
        try:
            costs_of_log(asked)
        except click.UsageError as error:
            assert "Still missing:" in str(error)  # noqa: PT017 (each is right)
        except DataError as error:
            assert str(error).startswith(str(path))  # noqa: PT017


@pytest.mark.parametrize(
    "line",
    [
        '{{"step": {step}, "data_time": 0.01, "loss": 2}}',
        "train iter {step}/60 lr 1e-4 dt: 2500.0ms tok/sec 2000",
        "global_step {step}: loss 2.31, elapsed 10.0s",
        "Update #{step} took 2.5s (samples_per_second=37.06)",
    ],
)
def test_a_pattern_is_shown_that_reads_the_steps_of_an_unknown_log(
    line: str, tmp_path: Path
) -> None:
    lines = [f"[2026-03-02 10:{step:02}:00] {line.format(step=step)}" for step in range(1, 60)]
    with pytest.raises(DataError, match="looks like the line of a step") as refusal:
        facts(tmp_path, ["loading", *lines])
    found = re.search(r"try --log-pattern '([^']+)', with", str(refusal.value))
    assert found is not None
    read = facts(tmp_path, lines, found[1])
    assert (read.steps, read.step and read.step.value) == (59, pytest.approx(60))
    with pytest.raises(DataError, match=re.escape(found[1])):
        facts(tmp_path, lines, r"no such line (?P<step>\d+)")


@pytest.mark.parametrize("line", ["hello", "Epoch 7: loss 0.3", "step 1: loss 0.3", "2026-03-02 10:00:00 batch size 32"])  # fmt: skip
def test_no_pattern_is_shown_where_nothing_counts_up(line: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="describe yours, as in --log-pattern"):
        facts(tmp_path, [line] * 30)


@pytest.mark.parametrize(
    ("patterns", "words"),
    [
        (["step (?P<step>"], "is not a regular expression"),
        (["step .*"], "names no group: use some of step, step_s"),
        (["(?P<loss>x) (?P<step>y)"], "names loss: use some of step, "),
        ([SAVED], r"no \(\?P<step>...\) in it"),
        (
            [STEP, r"(?P<time>\d+:\d+)"],
            "names only time: add it to the expression that matches the step or save of that line",
        ),
    ],
)
def test_a_wrong_pattern_is_refused(patterns: list[str], words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        read_log(written(tmp_path, ["step 1"]), patterns)


@pytest.mark.parametrize(
    ("content", "patterns", "words"),
    [
        ("", (), "it is empty"),
        ("hello\nthere\n", (), r"none of its 2 lines shows a step in the form of Megatron-LM.*--log-pattern.*'hello'"),
        ("hello\n", (STEP,), "none of its 1 lines.*correct it; the first line is 'hello'"),
        ("\nstep=a t=1\n", (r"step=(?P<step>\S+)",), r"train.log: line 2: step is 'a': let \(\?P<step>"),
        ("step=-1 t=1\n", (r"step=(?P<step>\S+)",), "step is '-1': let .* match only a number from 0"),
        ("3 at noon\n", (r"(?P<step>\d) at (?P<time>\w+)",), "line 1: time is 'noon': let"),
        ('{"log_history": [', (), r"cannot be read as trainer_state.json: Expecting value: line 1"),
        (b"\x1f\x8bnot", (), "cannot be unpacked"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_told_with_its_place(
    content: str | bytes, patterns: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    path = written(tmp_path, content)
    with pytest.raises(DataError, match=words) as raised:
        read_log(path, patterns)
    assert str(path) in str(raised.value)


# The command


LOSS = "{'loss': 2.31, 'grad_norm': 0.7, 'learning_rate': 5e-05, 'epoch': 0.1}"


@pytest.mark.parametrize(
    "others",
    [
        bar("Downloading data: ", 900, 4.0),
        bar("Tokenizing (num_proc=4): ", 200, 20.0),
        bar("Loading checkpoint shards: ", 7, 900.0, unit="s/it"),
        bar("", 900, 4.0),
        bar("", 200, 20.0),
        bar("Counting: ", 900, 4.0, unit="docs/s")
        + bar("model.safetensors: ", 900, 4.0, unit="s/file"),
        bar("", 100, 40.0) + bar("", 1700, 2.0),
    ],
)
@pytest.mark.parametrize("mark", [LOSS, LOSS.replace("'", '"'), ""])
def test_a_bar_that_lasts_longer_than_a_short_training_is_not_its_steps(
    others: str, mark: str, tmp_path: Path
) -> None:
    """Nor do steps of a bar with the same total count."""
    evaluation = bar("", 200, 0.1) + "{'eval_loss': 2.5, 'eval_runtime': 20.0, 'epoch': 1.0}\n"
    end = "{'train_runtime': 300.0, 'train_steps_per_second': 0.7, 'epoch': 1.0}\n"
    found = facts(tmp_path, others + bar("", 200, 1.5, mark) + end + evaluation)
    assert found.step is not None
    assert (found.steps, found.step.value) == (200, pytest.approx(1.5, rel=MIDDLE))


def test_an_epoch_without_a_line_on_its_loss_counts(tmp_path: Path) -> None:
    """Its bar is like the others, and that of the evaluation is not."""
    epochs = bar("", 200, 1.5) + LOSS + "\n" + bar("", 200, 0.1) + bar("", 200, 1.6)
    found = facts(tmp_path, epochs)
    assert found.step is not None
    assert (found.steps, found.step.value) == (400, pytest.approx(1.55, rel=MIDDLE))


@pytest.mark.parametrize(
    "known", ["***** Running training *****\n  Total optimization steps = 1,200\n", ""]
)
def test_the_bar_of_the_steps_is_known_by_their_number_or_by_a_loss_in_it(
    known: str, tmp_path: Path
) -> None:
    own = bar("", 1200, 0.5)
    if not known:
        own = own.replace("1.00it/s]", "1.00it/s, loss=2.31, lr=0.1]")
    found = facts(tmp_path, known + bar("", 600, 3.0) + own)
    assert found.step is not None
    assert (found.steps, found.step.value) == (1200, pytest.approx(0.5, rel=MIDDLE))


@pytest.mark.parametrize(
    ("log", "totals"),
    [
        (bar("", 900, 4.0) + bar("", 200, 1.5), (900, 200)),
        (bar("Phase 1: ", 200, 4.0) + bar("Run: ", 200, 1.5), (200, 200)),
        (
            bar("Packing: ", 90, 4.0)
            + bar("x", 900, 4.0)
            + bar("Training on packed data: ", 200, 1.5),
            (900, 200),
        ),
        (bar("", 200, 4.0) + bar("", 200, 1.5), (200,)),
        (bar("", 900, 4.0) + bar("", 200, 1.5).rpartition("\r")[0], (900, 200)),
    ],
)
def test_which_bar_counts_the_steps_is_not_guessed(
    log: str, totals: tuple[int, ...], tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="does not say which of its bars counts the steps") as told:
        facts(tmp_path, log)
    patterns = re.findall(r"--log-pattern '([^']+)'", str(told.value))
    assert len(patterns) == len(totals)
    if len(totals) > 1:
        found = facts(tmp_path, log, patterns[-1])
        assert found.step is not None
        assert found.steps == pytest.approx(totals[-1], abs=1)
        assert found.step.value == pytest.approx(1.5, rel=MIDDLE)


def test_a_bar_of_data_alone_tells_of_no_step(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="shows a step"):
        facts(tmp_path, bar("Tokenizing: ", 200, 1.0))


@pytest.mark.parametrize(
    "group",
    [r"(?P<time>[^\"]+)", r"(?P<time>[\d:]+)", r"(?:\d+ days?, )?(?P<time>[\d:]+)", r"(?P<time>\d+)"],
)  # fmt: skip
def test_a_clock_goes_on_beyond_a_day(group: str, tmp_path: Path) -> None:
    """Python prints a time of more than 24 hours as "2 days, 3:04:05", of which a group may catch a part."""
    made, lines = Made(step_s=12.4, noise=0.01), []
    for step in range(50, 20_001, 50):
        made.some(50 * made.step_s)
        passed = timedelta(seconds=int(made.now_s - Made().now_s))
        lines.append(f'{{"current_steps": {step}, "loss": 2.3, "elapsed_time": "{passed}", "remaining_time": "1 day, 6:50:16"}}')  # fmt: skip
    assert "2 days, " in lines[-1]
    pattern = rf'"current_steps": (?P<step>\d+).*"elapsed_time": "{group}'
    found = facts(tmp_path, lines, pattern)
    assert found.step is not None
    assert found.step.value == pytest.approx(12.4, rel=0.01)
    in_the_second_day = [line for line in lines if "1 day, " in line.split("remaining")[0]]
    later = facts(tmp_path, in_the_second_day, pattern)
    assert later.step is not None
    assert later.step.value == pytest.approx(12.4, rel=0.01)


def test_a_fork_of_megatron_prints_names_and_values(tmp_path: Path) -> None:
    """As Megatron-DeepSpeed of the ALCF does, with its first iteration three times as long."""
    lines: list[str] = []
    now_s = 0.0
    for step in range(1, 161):
        took_s = 64.0 if step == 1 else 20.5 + step % 5 / 10
        now_s += took_s
        stamp = f"2026-03-02 1{int(now_s) // 3600}:{int(now_s) // 60 % 60:02}:{now_s % 60:09.6f}"
        lines.append(
            f"[{stamp[:-3]}] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, lr=[3e-09], mom=[(0.9, 0.95)]"
        )
        lines.append(
            f"[{stamp}][INFO][training_log.py:661] -  iteration={step:8}/  105963 | consumed_samples={step * 768:12} | elapsed_time_per_iteration_ms={took_s * 1000:.1f} | lm loss=1.1E+01"
        )
        if step % 50 == 0:
            now_s += 412.3
            lines += [
                f"[{stamp}][INFO][checkpointing.py:301] - successfully saved checkpoint at iteration {step:7} to /ckpt",
                "(min, max) time across ranks (ms):",
                "    save-checkpoint ................................: (412000.00, 412300.00)",
            ]
    found = facts(tmp_path, lines)
    assert (found.name, found.steps, found.saves, found.interval) == ("Megatron-LM", 160, 3, 50)
    assert found.step is not None
    assert found.stall is not None
    assert (found.step.value, found.stall.value) == pytest.approx((20.7, 412.3), rel=0.005)

"""A log in a form that nobody knows is refused with a pattern that reads it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ckptbench.common.errors import DataError
from ckptbench.decide.training_log.facts import facts_of
from ckptbench.decide.training_log.reader import read_log

STEP_S = 2.5
Line = Callable[[int, float], str]
"""Of a step, that ended so many seconds after the first began."""


def clock(at_s: float) -> str:
    days, seconds = divmod(int(at_s), 86_400)
    day = f"{days} day{'s' * (days > 1)}, " if days else ""
    return f"{day}{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def stamp(at_s: float) -> str:
    return f"2026-03-02 1{int(at_s) // 3600}:{int(at_s) // 60 % 60:02}:{at_s % 60:06.3f}"


LINES: dict[str, Line] = {
    "a duration": lambda step, _: f'{{"step": {step}, "data_time": 0.01, "step_time": {STEP_S}, "loss": 2}}',
    "milliseconds": lambda step, _: f"train iter {step}/60 lr 1e-4 dt: {1000 * STEP_S}ms tok/sec 2000",
    "a date": lambda step, at_s: f"[{stamp(at_s)}] [Rank 0] step={step}, skipped=0, lr=[3.0e-09]",
    "a clock": lambda step, at_s: f'{{"current_steps": {step}, "total_steps": 60, "elapsed_time": "{clock(at_s)}", "remaining_time": "1 day, 2:00:00"}}',
    "seconds since the beginning": lambda step, at_s: f"global_step {step}: loss 2.31, elapsed {at_s:.1f}s",
    "samples a second": lambda step, _: f"Update #{step} took {STEP_S}s (samples_per_second=37.06)",
}  # fmt: skip


@pytest.mark.parametrize("kind", LINES)
@pytest.mark.parametrize("stride", [1, 10_000])
def test_a_pattern_is_shown_that_reads_the_log(kind: str, stride: int, tmp_path: Path) -> None:
    if stride > 1 and kind != "a clock":
        stride = 2
    lines = ["loading", *(LINES[kind](step * stride, step * stride * STEP_S) for step in range(1, 61))]  # fmt: skip
    log = tmp_path / "train.log"
    log.write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match="looks like the line of a step") as refused:
        read_log(log)
    found = re.search(r"try --log-pattern '([^']+)'$", str(refused.value))
    assert found is not None
    facts = facts_of(read_log(log, [found[1]]))
    assert facts.step is not None
    assert facts.step.value == pytest.approx(STEP_S, rel=0.01)
    with pytest.raises(DataError, match=re.escape(found[1])):
        read_log(log, [r"no such line (?P<step>\d+)"])


@pytest.mark.parametrize("line", ["hello", "Epoch 7: loss 0.3", "step 1: loss 0.3", "2026-03-02 10:00:00 batch size 32"])  # fmt: skip
def test_nothing_is_shown_where_nothing_counts_up(line: str, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(f"{line}\n" * 30)
    with pytest.raises(DataError, match="say how yours do, as in --log-pattern"):
        read_log(log)

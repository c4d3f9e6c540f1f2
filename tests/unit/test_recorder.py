"""The trace: what is written is read back, and a killed writer's last line spoils nothing."""

from __future__ import annotations

import json
from pathlib import Path

from ckptbench.run.events import End, Phase
from ckptbench.run.recorder import Recorder


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_steps_are_written_in_blocks_outside_the_timed_window(tmp_path: Path) -> None:
    path = tmp_path / "trace-0.jsonl"
    recorder = Recorder(path)
    for index in range(4, 7):
        recorder.step(index, 10 * index, 10 * index + 5, 0.5)
    assert path.read_text() == ""
    recorder.write_steps(epoch=2)
    recorder.write_steps(epoch=3)
    assert lines(path) == [
        {
            "event": "steps",
            "epoch": 2,
            "first_step": 4,
            "start_ns": [40, 50, 60],
            "end_ns": [45, 55, 65],
            "loss": [0.5, 0.5, 0.5],
        }
    ]


def test_an_event_is_in_the_file_at_once(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "trace-0.jsonl")
    recorder.write(End(monotonic_ns=3))
    assert lines(tmp_path / "trace-0.jsonl") == [{"event": "end", "monotonic_ns": 3}]


def test_a_second_attempt_follows_the_first_without_its_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "trace-0.jsonl"
    path.write_text('{"event":"start"}\n{"event":"epo')
    recorder = Recorder(path)
    recorder.write(Phase(name="load", start_ns=1, end_ns=2))
    recorder.close()
    assert [event["event"] for event in lines(path)] == ["start", "phase"]


def test_a_loss_that_is_no_number_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "trace-0.jsonl"
    recorder = Recorder(path)
    recorder.step(0, 1, 2, float("nan"))
    recorder.write_steps(epoch=0)
    assert str(lines(path)[0]["loss"]) == "[nan]"

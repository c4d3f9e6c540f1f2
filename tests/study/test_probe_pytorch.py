"""ckptbench-probe on real PyTorch: updates of every kind, engines, and the examples, beside the same without it."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from ckptbench.decide.given import read_given
from tests.study.probe_updates_names import UPDATES
from tests.study.probed_training import EXAMPLES, PYTORCH, Training, plain, probed, torchrun

pytestmark = pytest.mark.frameworks("pytorch")
UPDATING = Path(__file__).with_name("probe_updates.py")
SAVE_EVERY = 6
STEPS = 60
OPTIONS = ("--steps", str(STEPS), "--save-every", str(SAVE_EVERY))


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each way to train prints without the probe."""
    folder = tmp_path_factory.mktemp("plain")
    return {
        line.partition(" ")[0]: line
        for line in plain(folder, str(PYTORCH), str(UPDATING), *UPDATES).splitlines()
    }


@pytest.mark.parametrize("way", UPDATES)
def test_every_update_counts_once_and_nothing_changes(
    way: str, without: dict[str, str], tmp_path: Path
) -> None:
    known = UPDATES[way]
    training = probed(tmp_path, str(PYTORCH), str(UPDATING), way)
    assert training.out.splitlines() == [without[way]]
    assert training.summary["updates"] == known.steps
    assert training.summary["skipped"] == known.skipped
    if known.backwards is not None:
        assert training.summary["backwards_per_update"] == pytest.approx(known.backwards)


@pytest.fixture(scope="module", params=["gpt_ddp", "gpt_fsdp"])
def example(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def measured(example: str, tmp_path_factory: pytest.TempPathFactory) -> Training:
    folder = tmp_path_factory.mktemp(example)
    return probed(
        folder, *torchrun(str(EXAMPLES / f"{example}.py"), *OPTIONS), options=("--mtbf", "5h")
    )


def test_an_example_gives_the_same_bits_as_without(
    example: str, measured: Training, tmp_path: Path
) -> None:
    alone = plain(tmp_path, *torchrun(str(EXAMPLES / f"{example}.py"), *OPTIONS))
    last = re.compile(r"^loss .*$", re.MULTILINE)
    assert last.findall(alone) == last.findall(measured.out) != []


def test_an_example_is_measured_whole(example: str, measured: Training) -> None:
    summary = measured.summary
    assert (summary["ranks"], summary["updates"]) == (2, STEPS)
    assert len(summary["checkpoints"]) == STEPS // SAVE_EVERY
    assert summary["interval_steps"] == SAVE_EVERY
    assert summary["killed"] == 0
    for one in summary["checkpoints"]:
        assert one["finished_s"] >= 0
        assert one["failed"] is False


def test_the_stall_is_that_of_the_scripts_own_clock(measured: Training) -> None:
    """Two clocks around the same call. The median leaves out saves between whose ends and clocks another process ran."""
    own, seen = measured.by_own_clock_s, measured.blocked_s()
    assert len(own) == len(seen) == STEPS // SAVE_EVERY
    difference = statistics.median(one - other for one, other in zip(own, seen, strict=True))
    assert abs(difference) <= max(0.002, 0.05 * statistics.median(own))


def test_the_bytes_are_those_that_the_state_must_have(measured: Training) -> None:
    """Weights and two moments of AdamW; over all ranks, each part once."""
    summary = measured.summary
    weights = summary["state"]["weights"]["float32"]
    steps = summary["state"]["step"]["float32"]
    saved = summary["checkpoints"][-1]["bytes"]["float32"]
    assert summary["state"]["exp_avg"]["float32"] == weights
    assert saved in (
        3 * weights + steps,
        3 * weights + 2 * steps,
    )  # each rank of FSDP has all `step`
    assert summary["checkpoints"][-1]["size"] > saved


def test_the_costs_are_read_by_the_decision(measured: Training) -> None:
    table = read_given(measured.folder / "costs.yaml")
    (row,) = table.to_dict("records")
    assert row["ranks"] == 2
    assert row["interval"] == f"s{SAVE_EVERY}"
    assert 0 < row["stall_s"] <= row["durable_s"]
    assert row["step_s_lo"] < row["step_s"] < row["step_s_hi"]


def test_the_summary_ends_in_an_interval(measured: Training) -> None:
    (answer,) = (line for line in measured.told.splitlines() if "save_steps=" in line)
    assert re.search(r"save every [\d,]+ steps \(.*\): save_steps=\d+, which loses .* %", answer)
    assert f"today's {SAVE_EVERY} steps lose" in answer
    assert "at a failure every 5.0 h (as you say)" in answer


def test_the_command_of_the_decision_gives_the_same_interval(measured: Training) -> None:
    words = ["decide", "--costs", str(measured.folder / "costs.yaml"), "--mtbf", "5h", "--gpus", "2", "--save-steps"]  # fmt: skip
    done = subprocess.run([str(Path(sys.executable).with_name("ckptbench")), *words], capture_output=True, text=True, check=True)  # fmt: skip
    interval = re.compile(r"save_steps=(\d+)")
    assert interval.findall(done.stdout) == interval.findall(measured.told) != []


def test_the_pointer_moves_after_the_data(example: str, measured: Training) -> None:
    moved = {"gpt_ddp": r"step-\d+\.pt", "gpt_fsdp": r"\.metadata"}[example]
    seen = [
        event for event in measured.events("moved") if re.fullmatch(moved, Path(event["path"]).name)
    ]
    assert len(seen) == STEPS // SAVE_EVERY
    for event, save in zip(seen, measured.events("save"), strict=True):
        assert event["at_ns"] > save["start_ns"]


def test_what_an_asynchronous_save_does_in_the_background_is_no_stall(
    tmp_path_factory: pytest.TempPathFactory, measured: Training, example: str
) -> None:
    background = [one["background"] for one in measured.summary["checkpoints"]]
    assert background == [example == "gpt_fsdp"] * (STEPS // SAVE_EVERY)
    if example == "gpt_fsdp":
        assert len(measured.events("part")) == STEPS // SAVE_EVERY
        assert all(event["stepping"] for event in measured.events("save"))


def test_syncs_are_seen(example: str, measured: Training) -> None:
    if example == "gpt_ddp":
        assert "no sync was seen" in measured.told
    else:
        synced = {Path(event["path"]).suffix for event in measured.events("synced")}
        assert synced == {".distcp", ".tmp"}
        assert "no sync was seen" not in measured.told

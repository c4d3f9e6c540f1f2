"""The trainings of `examples` under ckptbench-probe, beside the same without it and beside what their own clocks say."""

from __future__ import annotations

import re
import statistics
from pathlib import Path

import pytest

from ckptbench.cli.verbs import run
from ckptbench.decide.user_costs import read_user_costs
from tests.study.probed_examples import TRAINED, Example, without_times
from tests.study.probed_training import Training, cold, plain, probed, warm
from tests.study.selection import FULL

EACH = [
    pytest.param(name, marks=pytest.mark.frameworks(example.environment))
    for name, example in TRAINED.items()
]


@pytest.fixture(scope="module", params=EACH)
def example(request: pytest.FixtureRequest) -> Example:
    return TRAINED[request.param]


@pytest.fixture(scope="module")
def measured(example: Example, tmp_path_factory: pytest.TempPathFactory) -> Training:
    """A probe that fails would end with another exit code, which `probed` refuses."""
    folder = tmp_path_factory.mktemp(example.script)
    environment = example.environment
    launcher = cold(environment) if example.cold else None
    ranks_too = FULL or not example.torchrun
    started = launcher if launcher and ranks_too else warm(environment, "run")
    command = example.command(started, launcher=launcher)
    return probed(folder, *command, options=("--mtbf", "5h"))


def test_it_prints_the_same_and_ends_in_the_same_bits_as_without(
    example: Example, measured: Training, tmp_path: Path
) -> None:
    alone = without_times(plain(tmp_path, *example.command(warm(example.environment, "plain"))))
    assert without_times(measured.out) == alone
    assert re.fullmatch("weights [0-9a-f]{64}", alone[-1])


def test_steps_and_saves_are_seen_whole(example: Example, measured: Training) -> None:
    summary = measured.summary
    assert (summary["ranks"], summary["updates"]) == (example.ranks, example.steps)
    assert summary["interval_steps"] == example.save_every
    assert (summary["killed"], summary["other_saves"], summary["attempts"]) == (0, 0, 1)
    assert [one["updates"] for one in summary["checkpoints"]] == example.saves
    for one in summary["checkpoints"]:
        assert one["kinds"] == [example.kind]
        assert one["failed"] is False
    behind = [one["background"] for one in summary["checkpoints"]]
    # On a busy machine a background write of these few megabytes now and then ends before the call that began it returns.
    at_once = len(behind) - sum(behind)
    assert at_once <= 2 if example.background else at_once == len(behind)


def test_each_save_has_its_stall_end_and_slowdown(example: Example, measured: Training) -> None:
    """No update follows the last save, so that nothing is slower beside it."""
    summary = measured.summary
    for one in summary["checkpoints"]:
        assert one["stall_s"] > 0
        # A background write of these few megabytes may end before the call that began it returns.
        assert example.background or one["stall_s"] <= one["finished_s"]
    assert [one["slowdown_s"] is None for one in summary["checkpoints"]] == [
        updates == example.steps for updates in example.saves
    ]


def test_the_stall_is_that_of_the_scripts_own_clock(example: Example, measured: Training) -> None:
    """Its clock encloses the probe's. The smallest difference leaves out saves between whose two ends another thread or process ran."""
    own, seen = measured.by_own_clock_s, measured.blocked_s()
    assert len(own) == len(seen) == len(example.saves)
    differences = [one - other for one, other in zip(own, seen, strict=True)]
    smallest = min(differences)
    assert smallest > -1e-6  # to which it prints
    assert smallest <= max(0.002, 0.05 * statistics.median(own))


def test_the_bytes_are_those_that_the_state_must_have(example: Example, measured: Training) -> None:
    """Weights and two moments of Adam; over all ranks, each part once. The steps of parameters are kept as float32 too."""
    summary = measured.summary
    weights = 4 * example.weights
    for one in summary["checkpoints"]:
        assert 3 * weights <= one["bytes"]["float32"] < 3 * weights + 1000
    assert summary["checkpoints"][-1]["files"] > 0
    assert summary["checkpoints"][-1]["size"] > 2.7 * weights  # Orbax compresses
    if example.environment in ("pytorch", "trainers"):
        assert summary["state"]["weights"] == {"float32": weights}
        assert summary["state"]["exp_avg"] == {"float32": weights}


def test_what_is_unsafe_is_told(example: Example, measured: Training) -> None:
    unsafe = measured.summary["unsafe"]
    assert len(unsafe) == len(example.unsafe)
    assert all(map(re.match, example.unsafe, unsafe))


def test_the_pointer_moves_after_the_data(example: Example, measured: Training) -> None:
    seen = [
        event["at_ns"]
        for event in measured.events("moved")
        if re.fullmatch(example.moved or "", Path(event["path"]).name)
    ]
    saves = measured.events("save")
    assert len(seen) == (len(saves) if example.moved else 0)
    assert all(at > save["start_ns"] for at, save in zip(seen, saves, strict=False))


def test_the_costs_are_read_by_the_decision(example: Example, measured: Training) -> None:
    table = read_user_costs(measured.folder / "costs.yaml")
    (row,) = table.to_dict("records")
    assert row["ranks"] == example.ranks
    assert row["interval"] == f"s{example.save_every}"
    assert 0 < row["stall_s"] <= row["durable_s"]
    assert row["step_s_lo"] < row["step_s"] < row["step_s_hi"]


def test_the_summary_ends_in_an_answer(example: Example, measured: Training) -> None:
    lines = measured.told.splitlines()
    (place,) = (number for number, line in enumerate(lines) if "save every" in line)
    assert re.search(r"save every \S+ steps \(.*\)$", lines[place])
    assert re.search(r" now +\S.* loses ", lines[place - 2])
    assert re.search(r" best +.* loses .* %", lines[place - 1])
    steps = re.search(r"save every (\S+) steps", lines[place])[1].replace(",", "")  # type: ignore[index]
    assert re.search(rf" paste: \S.*\b{steps}\b", lines[place + 1])
    assert lines[place + 2].endswith(f"failures: one in 5.0 h, as you say; now is every {example.save_every} steps")  # fmt: skip


def test_the_command_of_the_decision_gives_the_same_interval(
    example: Example, measured: Training, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["decide", "--costs", str(measured.folder / "costs.yaml"), "--mtbf", "5h", "--gpus", str(example.ranks), "--save-steps"]  # fmt: skip
    assert run(words) == 0
    interval = re.compile(r"(?<!now is )every ([\d,]+) steps?\b")
    assert interval.findall(capsys.readouterr().out) == interval.findall(measured.told)[-1:] != []


def test_syncs_are_seen(example: Example, measured: Training) -> None:
    synced = {Path(event["path"]).suffix for event in measured.events("synced")}
    assert synced == ({".distcp", ".tmp"} if example.kind == "dcp.async_save" else set())


def test_the_background_part_is_seen_and_is_no_stall(example: Example, measured: Training) -> None:
    """That of Orbax runs in C++: only its end is told."""
    expected = len(example.saves) if example.background and example.kind != "orbax" else 0
    assert len(measured.events("part")) == expected
    assert all(event["stepping"] for event in measured.events("save"))

"""The audit: its verdicts, its table and its lines, A/A over made-up baselines, and one thin calibration."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from counted import during
from run_folders import FakeRun, cell

from ckptbench.analysis.collect.runs import collect
from ckptbench.analysis.cost.statistics import UNKNOWN, Estimate, Interval
from ckptbench.analysis.tables.registry import AUDITED
from ckptbench.analysis.tables.store import read_tables, write_tables
from ckptbench.audit import calibration, storage, study
from ckptbench.audit.check import Check, Question, audit, exactly, in_words
from ckptbench.audit.machine import audit_machine
from ckptbench.common import page_cache
from ckptbench.common.errors import CheckpointError, ConfigError
from ckptbench.config.study import load_config
from ckptbench.matrix.networks.models import ARCHITECTURES
from ckptbench.matrix.registry import FRAMEWORKS, STRATEGIES
from ckptbench.workflow.__main__ import main as run_verb

ROOT = Path(__file__).resolve().parents[2]
QUESTION = Question(
    check="a", subject="b", limit=1.0, holds="good", fails="bad", unknown="who knows"
)
SMALL = calibration.Size(repeats=2, steps_per_epoch=20, interval=10, stall_ms=20)


@pytest.mark.parametrize(
    ("lo", "hi", "verdict"),
    [
        (-0.01, 0.02, "holds"),
        (0.004, 0.02, "holds"),
        (0.006, 0.02, "fails"),
        (-0.03, -0.0051, "fails"),
        (-0.2, 0.2, "unknown"),
        (0.01, 0.5, "fails"),
        (math.nan, math.nan, "unknown"),
    ],
)
def test_a_truth_must_lie_in_an_interval_that_is_narrow_enough_to_say_something(
    lo: float, hi: float, verdict: str
) -> None:
    estimate = Estimate(0.01, Interval(lo, hi))
    check = dataclasses.replace(QUESTION, limit=0.005).truth(0.0, estimate, widest=0.05)
    assert check.verdict == verdict
    assert check.meaning == {"holds": "good", "fails": "bad", "unknown": "who knows"}[verdict]


@pytest.mark.parametrize(
    ("interval", "at_most", "at_least"),
    [
        (Interval(0.1, 0.9), "holds", "fails"),
        (Interval(1.1, 1.9), "fails", "holds"),
        (Interval(0.9, 1.1), "unknown", "unknown"),
        (UNKNOWN, "unknown", "unknown"),
    ],
)
def test_a_limit_must_have_the_whole_interval_on_one_side(
    interval: Interval, at_most: str, at_least: str
) -> None:
    estimate = Estimate(1.0, interval)
    assert QUESTION.at_most(estimate).verdict == at_most
    assert QUESTION.at_least(estimate).verdict == at_least


def test_what_the_calibration_trains_is_no_choice_of_a_config() -> None:
    assert "numpy" in FRAMEWORKS
    assert "numpy" not in list(FRAMEWORKS)
    assert not {"null", "stall"} & set(STRATEGIES.keys())
    assert "linear" not in ARCHITECTURES
    for name, value in {"framework": "numpy", "model": "linear"}.items():
        with pytest.raises(ConfigError, match=value):
            load_config({"matrix": {name: value}})


@pytest.mark.parametrize(
    ("step_s", "steps"),
    [(0.001, 480), (0.006, 480), (0.02, 150), (10.0, 40)],
)
def test_slow_steps_make_fewer_of_them_and_as_many_saves(step_s: float, steps: int) -> None:
    size = calibration.Size().within(step_s)
    assert (size.steps_per_epoch, size.saves) == (steps, calibration.Size().saves)
    assert size.repeats == calibration.Size().repeats


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, pd.DataFrame]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(calibration.IMAGES, "classes", 16)
        yield calibration.collected_runs(tmp_path_factory.mktemp("audit"), "0" * 64, SMALL)


def test_a_known_stall_is_measured_by_the_real_loop_recorder_reader_and_tables(
    calibrated: dict[str, pd.DataFrame],
) -> None:
    _, nothing = calibration.estimated(calibrated, calibration.NULL)
    overhead, stalling = calibration.estimated(calibrated, SMALL.stall)
    # No more than that: a busy machine makes a stall longer, never shorter.
    assert stalling["stall_s"] >= 0.02
    assert nothing["stall_s"] < stalling["stall_s"]
    assert SMALL.saves == 4
    assert overhead["checkpoints"] == 2 * SMALL.saves
    assert (calibrated["machine"]["seconds"] > 0).all()


def test_the_checks_of_a_calibration_know_the_truth(
    calibrated: dict[str, pd.DataFrame],
) -> None:
    found = calibration.checks_of(calibrated, SMALL)
    assert len(found) == 6
    assert [each.truth for each in found[:3]] == [0.0, 0.0, 0.0]
    overhead, _ = calibration.estimated(calibrated, SMALL.stall)
    truths = [0.08 / overhead["baseline_s"]] * 2 + [0.02]
    assert [each.truth for each in found[3:]] == pytest.approx(truths)


def test_a_cost_that_is_measured_wrongly_does_not_hold(
    calibrated: dict[str, pd.DataFrame],
) -> None:
    """The stalls were 20 ms, and are held against half a second."""
    _, cost = calibration.estimated(calibrated, SMALL.stall)
    assert calibration.of_stall("stall", cost, 0.5).verdict != "holds"


def test_a_narrow_interval_without_the_truth_in_it_fails() -> None:
    cost = {"stall_s": 0.05, "stall_s_lo": 0.049, "stall_s_hi": 0.051}
    assert calibration.of_stall("stall", cost, 0.02).verdict == "fails"
    assert calibration.of_stall("stall", cost, 0.0505).verdict == "holds"
    row = {"in_run": 0.3, "in_run_lo": 0.29, "in_run_hi": 0.31}
    assert calibration.of_overhead("overhead", row, "in_run", 0.2).verdict == "fails"


def of_baselines(folder: Path, step_s: list[float]) -> Check:
    runs = [
        FakeRun(cell=cell("never", repeat=repeat), step_s=lambda rank, step, s=seconds: s)
        for repeat, seconds in enumerate(step_s)
    ]
    return study.equal_runs(collect([run.write(folder) for run in runs]))


def test_equal_baselines_measure_the_same(tmp_path: Path) -> None:
    check = of_baselines(tmp_path, [0.1, 0.102, 0.101, 0.1, 0.101, 0.102])
    assert (check.verdict, check.truth) == ("holds", 0.0)
    assert check.lo < 0 < check.hi
    assert "3 pairs" in check.subject


def test_a_machine_that_becomes_slower_fails_a_against_a(tmp_path: Path) -> None:
    check = of_baselines(tmp_path, [0.1, 0.11, 0.12, 0.132, 0.14, 0.1541])
    assert check.verdict == "fails"
    assert check.value == pytest.approx(0.1, abs=0.002)


@pytest.mark.parametrize("step_s", [[], [0.1], [0.1, 0.11, 0.1]])
def test_too_few_baselines_say_what_is_needed(tmp_path: Path, step_s: list[float]) -> None:
    check = of_baselines(tmp_path, step_s)
    assert check.verdict == "unknown"
    assert "run it, then the audit again" in check.meaning
    assert study.equal_runs({}).verdict == "unknown"


def test_baselines_that_differ_without_order_cannot_tell(tmp_path: Path) -> None:
    check = of_baselines(tmp_path, [0.1, 0.2, 0.2, 0.1])
    assert check.verdict == "unknown"
    assert "differ too much" in check.meaning


def test_disturbed_runs_are_named(tmp_path: Path) -> None:
    runs = [
        FakeRun(cell=cell(repeat=repeat), counted=during(busy=100, own=100 - others))
        for repeat, others in enumerate((0, 20))
    ]
    stolen, others = study.undisturbed_runs(collect([run.write(tmp_path) for run in runs]))
    assert stolen.verdict == "holds"
    assert others.verdict == "fails"
    assert others.value == pytest.approx(0.1)
    assert "1 of 2 runs were disturbed" in others.meaning
    assert "rep1 (10.0%)" in others.meaning
    assert [each.verdict for each in study.undisturbed_runs({})] == ["unknown"] * 2


@pytest.fixture
def in_memory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def test_a_file_system_in_memory_has_no_cold_read(in_memory: Path) -> None:
    evicted, _ = storage.cold_reads(in_memory, size=2**20)
    assert evicted.verdict in ("fails", "unknown")
    assert not list(in_memory.iterdir())


def test_a_write_that_fsync_does_not_sync_is_too_fast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {0: 0.01, storage.os.O_DIRECT: 0.1}
    monkeypatch.setattr(storage, "written_s", lambda path, memory, blocks, flags: seconds[flags])
    check = storage.bandwidth(tmp_path, size=storage.BLOCK)
    assert (check.verdict, check.value) == ("fails", pytest.approx(10.0))


def test_a_file_system_without_direct_writes_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> float:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(storage, "written_s", refuse)
    check = storage.bandwidth(tmp_path, size=storage.BLOCK)
    assert check.verdict == "unknown"
    assert "takes no O_DIRECT writes (Invalid argument)" in check.meaning


@pytest.mark.parametrize(
    ("counts", "verdicts"),
    [
        ([0, 100, 100, 100], ["holds", "holds"]),
        ([0, 3, 3, 3], ["fails", "unknown"]),
        ([0, 100, 100, 200], ["holds", "fails"]),
        ([None] * 4, ["unknown", "unknown"]),
    ],
)
def test_cold_reads_are_what_the_kernel_counts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    counts: list[int | None],
    verdicts: list[str],
) -> None:
    told = iter(counts)
    monkeypatch.setattr(page_cache, "read_bytes", lambda: next(told))
    assert [each.verdict for each in storage.cold_reads(tmp_path, size=100)] == verdicts


def test_restarts_of_the_study_that_were_not_as_cold_as_asked_are_named() -> None:
    restore = pd.DataFrame(
        {"run": ["one", "two"], "cold_shown": pd.array([True, False], "boolean")}
    )
    (check,) = study.cold_restarts({"restore": restore})
    assert (check.verdict, check.value) == ("fails", 0.5)
    assert "two" in check.meaning
    assert "one" not in check.meaning


def test_a_folder_that_cannot_take_the_files_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"file/runs cannot take .* checkpoints.folder"):
        audit_machine({}, tmp_path / "file" / "runs", "0" * 64, SMALL)


CHECKS = [
    Check(check="calibration", subject="s", value=0.001, lo=-0.01, hi=0.02, truth=0.0, limit=0.005, verdict="holds", meaning="fine"),
    Check(check="fsync", subject="f", value=3.0, lo=2.5, hi=3.5, limit=2.0, verdict="fails", meaning="not fine"),
    Check(check="A/A", subject="a", truth=0.0, limit=0.005, verdict="unknown", meaning="no study"),
]  # fmt: skip


def test_the_table_is_read_back_in_the_order_of_the_checks(tmp_path: Path) -> None:
    write_tables(tmp_path, {"audit": audit(CHECKS)})
    found = read_tables(tmp_path, AUDITED)["audit"]
    assert found["number"].tolist() == [1, 2, 3]
    assert found["verdict"].tolist() == ["holds", "fails", "unknown"]
    assert found["value"].tolist()[:2] == [0.001, 3.0]
    assert np.isnan(found["value"].iloc[2])


def test_the_verb_makes_the_table_of_the_rule_and_prints_its_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(calibration, "RUN_S", 0.1)  # as of slow steps, of which it takes few
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "1")  # the verb leaves them so
    rule = (ROOT / "workflow/rules/audit.smk").read_text()
    tables = tmp_path / "results" / "tables"
    words = ["--tables", str(tables), "--checkpoints", str(tmp_path / "runs"), "--repeats", "2", "--log", str(tmp_path / "log")]  # fmt: skip
    assert run_verb(["audit", *words]) == 0
    made = {f"results/tables/{path.name}" for path in tables.iterdir()}
    assert made == {f"results/tables/audit.{kind}" for kind in ("parquet", "csv")}
    assert 'expand("results/tables/audit.{format}", format=["parquet", "csv"])' in rule
    checks = read_tables(tables, ["audit"])["audit"]
    (stall,) = checks[(checks["unit"] == "s") & (checks["truth"] == 0.1)].to_dict("records")
    assert stall["value"] == pytest.approx(0.1, abs=0.02)
    printed = capfd.readouterr().out
    assert f" of {len(checks)} checks hold, " in printed
    assert all(subject in printed for subject in checks["subject"])


def test_the_lines_say_how_many_hold_and_begin_with_what_fails() -> None:
    total, *lines = in_words(CHECKS).splitlines()
    assert total == "1 of 3 checks hold, 1 fail, 1 unknown."
    assert lines == [
        "fails    fsync, f: 300.0 % [250.0 % to 350.0 %]; the limit is 200.0 %. Not fine.",
        "unknown  A/A, a: not measured. No study.",
        "holds    calibration, s: 0.1 % [-1.0 % to 2.0 %]; the truth is 0.0 %. Fine.",
    ]


def test_a_value_that_was_counted_has_itself_as_its_interval() -> None:
    check = QUESTION.at_most(exactly(1.0))
    assert dataclasses.astuple(check)[2:5] == (1.0, 1.0, 1.0)
    assert check.verdict == "holds"


WATCHED = """
import os, sys
class Watch:
    def find_spec(self, name, path, target=None):
        if name == "numpy":
            print(os.environ.get("OPENBLAS_NUM_THREADS"), flush=True)
sys.meta_path.insert(0, Watch())
from ckptbench.workflow.__main__ import main
main(["audit", "--help"])
"""


def test_numpy_has_one_thread_from_its_first_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    command = [sys.executable, "-c", WATCHED]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "1"

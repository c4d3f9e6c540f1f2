"""What a study will take: numbers by hand for a small matrix."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ckptbench.common.files import write_json
from ckptbench.common.host import count_gpus
from ckptbench.config.expansion import expand
from ckptbench.config.outlook import Machine, outlook
from ckptbench.config.study import StudyConfig, load_config
from ckptbench.matrix.cell import Cell

SMALL = {
    "matrix": {
        "framework": "pytorch",
        "model": "small_cnn",  # 3,954 parameters and 48 buffers for 10 classes
        "dataset": "synthetic",
        "ranks": [1, 2],
        "batch_size": 8,
        "epochs": 2,
        "interval": ["never", "2 steps"],
    },
    "datasets": {"synthetic": {"train_samples": 64}},
    "repeats": 2,
}
ONE, TWO = 8 * 3954 + 4 * 48, 8 * 3954 + 2 * 4 * 48
"""Bytes of a checkpoint of one rank and of two: 31,824 and 32,016."""


def lines(results: Path, machine: Machine | None = None, **changes: Any) -> list[str]:
    config = load_config({**SMALL, **changes})
    return outlook("Mine", config, expand(config), machine or Machine(), results)


def trained(
    results: Path, cell: Cell, config: StudyConfig, seconds: float, attempts: int = 1
) -> None:
    """A run of the cell that took so long."""
    folder = results / "runs" / cell.id
    folder.mkdir(parents=True)
    content = {
        "cell": cell.to_json(),
        "training": dataclasses.asdict(config.training_of_cells()),
        "status": "complete",
        "attempts": attempts,
        "duration_s": seconds,
    }
    write_json(folder / "manifest.json", content)
    (folder / "seal.json").touch()


def told(printed: Sequence[str], name: str) -> str:
    (line,) = (line for line in printed if line.startswith(name))
    return line.removeprefix(name).strip()


def test_runs_steps_checkpoints_and_bytes_follow_from_the_config(tmp_path: Path) -> None:
    """64 samples are 8 steps of one rank and 4 of two, in each of two epochs; a checkpoint follows every second step."""
    written = 2 * (8 * ONE + 4 * TWO)
    assert written == 765_312
    assert 3 * TWO == 96_048  # two are kept, and the next one is written
    assert lines(tmp_path) == [
        "Mine: 8 runs, 0 of them done",
        "                     runs  ranks  steps a run  checkpoints  bytes of each",
        "pytorch small_cnn 1     4      1           16           16        31.8 kB",
        "pytorch small_cnn 2     4      2            8            8          32 kB",
        "checkpoints  765 kB written, at most 96 kB on the disk at once: tensors, uncompressed",
        "time         1 min to 3 min, a guess from the sizes of network and state: for a better one run one repeat (snakemake ... --config repeats=1), then ask again",
    ]


def test_versions_that_stay_add_up_and_runs_side_by_side_too(tmp_path: Path) -> None:
    stay = lines(tmp_path, checkpoints={"keep_after_run": 1})
    assert 2 * ONE + 2 * TWO + 2 * TWO == 191_712
    assert "at most 192 kB on the disk at once" in told(stay, "checkpoints")
    cluster = lines(tmp_path, Machine(at_once=3, is_cluster=True))
    assert 3 * (2 * TWO + ONE) == 287_568
    assert "at most 288 kB on the disk at once" in told(cluster, "checkpoints")


def test_a_cluster_takes_at_most_the_limit_of_every_job_on_its_nodes(tmp_path: Path) -> None:
    """Four runs on one node and four on two, for half an hour each, three at a time."""
    machine = Machine(at_once=3, is_cluster=True, ranks_per_node=1, limit_min=30)
    told_time, told_hours = lines(tmp_path, machine)[-2:]
    assert told_time == "time         at most 90 min: 30 min a run, 3 at once, without the wait in the queue"  # fmt: skip
    assert told_hours == "node-hours   at most 6: 30 min a run on 1 - 2 nodes, none requeued"
    shorter = lines(tmp_path, machine, limits={"run_minutes": 10})
    assert "at most 2: 10 min a run" in told(shorter, "node-hours")
    unlimited = lines(tmp_path, dataclasses.replace(machine, limit_min=None))
    assert told(unlimited, "node-hours") == "not known: the profile sets no runtime"


def test_earlier_runs_count_whether_they_had_a_proof_or_not_where_it_is_of_compared_runs(
    tmp_path: Path,
) -> None:
    config = load_config(SMALL)
    trained(tmp_path, expand(config)[0], config, 360.0)
    printed = lines(tmp_path, training={"proof": "compared"})
    assert printed[0] == "Mine: 8 runs, 1 of them done"


def test_time_is_that_of_earlier_runs_and_says_for_how_many(tmp_path: Path) -> None:
    """The baseline of one rank took six minutes: so do its second repeat and two runs with checkpoints, and nothing is known of two ranks."""
    config = load_config(SMALL)
    first, *_ = cells = expand(config)
    assert first.is_baseline
    assert first.ranks == 1
    trained(tmp_path, first, config, 360.0)
    printed = lines(tmp_path)
    assert printed[0] == "Mine: 8 runs, 1 of them done"
    assert told(printed, "time") == "about 18 min for 3 of the 7 runs left, as earlier runs took"
    for cell in cells[1:4]:  # the runs of this repeat: with checkpoints each takes a minute more
        trained(tmp_path, cell, config, 360.0 + 60 * (not cell.is_baseline))
    machine = Machine(at_once=2, is_cluster=True, ranks_per_node=1)
    printed = lines(tmp_path, machine)
    assert told(printed, "time") == "about 13 min, as earlier runs took, without the wait in the queue"  # fmt: skip
    assert (6 + 7) * (1 + 2) / 60 == 0.65
    assert told(printed, "node-hours") == "about 0.65, as earlier runs took"
    for cell in cells[4:]:
        trained(tmp_path, cell, config, 1.0)
    assert told(lines(tmp_path), "time") == "none: every run is done"


def test_runs_of_another_training_and_damaged_ones_tell_no_time(tmp_path: Path) -> None:
    config = load_config({**SMALL, "training": {"steps_per_epoch": 2}})
    first, second, *_ = expand(config)
    trained(tmp_path, first, config, 360.0)
    trained(tmp_path, second, config, 360.0)
    (tmp_path / "runs" / second.id / "manifest.json").write_text("{}")
    assert "as earlier runs took" not in told(lines(tmp_path), "time")


def test_a_run_that_was_continued_is_done_and_tells_no_time(tmp_path: Path) -> None:
    """It may have waited for days between two attempts."""
    config = load_config(SMALL)
    trained(tmp_path, expand(config)[0], config, 360_000.0, attempts=2)
    printed = lines(tmp_path)
    assert printed[0] == "Mine: 8 runs, 1 of them done"
    assert "as earlier runs took" not in told(printed, "time")


def test_a_study_of_one_repeat_is_not_told_to_run_one_repeat(tmp_path: Path) -> None:
    assert told(lines(tmp_path, repeats=1), "time").endswith("better one start it, then ask again")


def test_a_guess_of_the_time_counts_starts_operations_updates_and_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run of 100 steps of VGG-16 on four cores, by hand: 10 s + 100 * (3 * 2 * 432,775,168 * 8 / 80e9 s + 8 * 134,301,514 / 1e9 s) + 1.07e9 / 300e6 s = 147 s."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    matrix = {"framework": "pytorch", "model": "vgg16", "dataset": "synthetic", "ranks": 1, "batch_size": 8, "epochs": 1, "interval": "100 steps"}  # fmt: skip
    asked: dict[str, Any] = {"matrix": matrix, "datasets": {"synthetic": {"train_samples": 800}}, "repeats": 1}  # fmt: skip
    config = load_config(asked)
    cells = [cell for cell in expand(config) if not cell.is_baseline]
    printed = outlook("Mine", config, cells * 60, Machine(), tmp_path)
    assert told(printed, "time").startswith("59 min to 6.12 h, a guess ")
    assert 60 * 147 / 60 / 2.5 == 58.8
    on_gpus = outlook("Mine", load_config({**asked, "accelerator": "cuda"}), cells, Machine(gpus=1), tmp_path)  # fmt: skip
    assert told(on_gpus, "time").startswith("not known yet: ")


def test_a_machine_with_too_few_gpus_is_said_in_place_of_the_advice_to_run(tmp_path: Path) -> None:
    printed = lines(tmp_path, Machine(gpus=0), accelerator="cuda")
    assert told(printed, "GPUs").startswith("needs 2 CUDA GPUs, and this machine has none: ")
    assert not [line for line in printed if line.startswith("time")]
    printed = lines(tmp_path, Machine(gpus=1), accelerator="cuda")
    assert "this machine has 1: " in told(printed, "GPUs")
    for machine in (Machine(gpus=2), Machine(is_cluster=True)):
        printed = lines(tmp_path, machine, accelerator="cuda")
        assert not [line for line in printed if line.startswith("GPUs")]


def test_gpus_are_those_that_the_driver_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nfor each in $(seq 100); do echo NVIDIA H200; done\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert count_gpus() == 100
    program.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'; exit 9\n")
    assert count_gpus() == len([*Path("/dev").glob("nvidia[0-9]*")])


def test_a_run_of_more_nodes_than_a_job_has_is_said(tmp_path: Path) -> None:
    machine = Machine(is_cluster=True, ranks_per_node=1, most_nodes=1)
    assert told(lines(tmp_path, machine), "nodes").startswith("2 for 2 ranks, and a job has 1 at most (max_nodes): ")  # fmt: skip
    enough = dataclasses.replace(machine, most_nodes=2)
    assert not [line for line in lines(tmp_path, enough) if line.startswith("nodes ")]


def test_what_only_a_prepared_dataset_tells_is_left_out_and_counted(tmp_path: Path) -> None:
    """The vocabulary of nanoGPT's tokens and their number."""
    matrix = {**SMALL["matrix"], "model": "gpt_baby", "dataset": "text", "ranks": 1}  # type: ignore[dict-item]
    datasets = {"text": {"path": "tokens.bin"}}
    printed = lines(tmp_path, matrix=matrix, datasets=datasets)
    assert printed[2].split()[-3:] == ["?", "?", "?"]
    assert told(printed, "checkpoints").endswith("; without 2 runs of a dataset to be prepared")


def test_only_versions_at_the_shared_level_count(tmp_path: Path) -> None:
    deepfreeze = {"deepfreeze": {"memory": 1, "shared": 4}}
    matrix = {**SMALL["matrix"], "ranks": 1, "strategy": [deepfreeze]}  # type: ignore[dict-item]
    assert told(lines(tmp_path, matrix=matrix, repeats=1), "checkpoints").startswith("63.6 kB ")


def test_a_study_without_checkpoints_writes_none(tmp_path: Path) -> None:
    matrix = {**SMALL["matrix"], "interval": "never"}  # type: ignore[dict-item]
    assert told(lines(tmp_path, matrix=matrix), "checkpoints") == "none"


def test_many_setups_share_three_rows(tmp_path: Path) -> None:
    matrix = {"framework": ["chainer", "pytorch", "tensorflow"], "ranks": [1, 2, 4, 8], "model": ["resnet50", "vgg16"]}  # fmt: skip
    printed = lines(tmp_path, matrix=matrix)
    assert [line.split()[0] for line in printed[2:-2]] == ["resnet50", "vgg16"]
    assert len(printed) == 6

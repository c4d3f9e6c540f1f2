"""A power cut at any moment: the run goes on from the newest durable version, bit for bit, and its trace lacks nothing before it.

Where no disk can be mounted the order of syncs is checked alone: all that a restart needs is synced before a version is committed.
"""

from __future__ import annotations

import dataclasses
import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from checkout import ROOT
from power_cut import cut, make_disk, mounted, repair, snapshot
from selection import FULL

from ckptbench.analysis.collect.run_folder import Run
from ckptbench.inputs.datasets.sources import prepare
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.interval import Interval
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.training import Training
from ckptbench.run.layout import trace_path
from ckptbench.run.seal import verify_seal

EPOCHS, STEPS = 100 if FULL else 40, 6
CUTS = 20 if FULL else 2
SHAPE = {"height": 4, "width": 4, "channels": 1, "classes": 3}
TRAINING = Training(
    seed=1,
    learning_rate=0.1,
    momentum=0.9,
    weight_decay=0.0,
    steps_per_epoch=STEPS,
    test_samples=16,
    warmup_steps=1,
    keep_during_run=2,
)


def cell_of(strategy: str, format: str) -> Cell:
    """Two of three checkpoints are inside an epoch, and one at its end."""
    return Cell(
        framework="numpy",
        model="linear",
        dataset="synthetic",
        ranks=1,
        batch_size=8,
        epochs=EPOCHS,
        strategy=PluginSpec(strategy),
        format=format,
        interval=Interval.parse("s4"),
    )


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dataset") / "synthetic"
    prepare("synthetic", folder, {**SHAPE, "train_samples": 64, "test_samples": 16})
    return folder


def command(cell: Cell, dataset: Path, disk: Path, *, apart: bool) -> list[str]:
    """`apart`: checkpoints are in a folder of their own, as `checkpoints.folder` has it."""
    return [
        sys.executable, "-m", "ckptbench.workflow", "train-cell", "--resume",
        "--cell", json.dumps(cell.to_json()), "--training", json.dumps(dataclasses.asdict(TRAINING)),
        "--dataset", str(dataset), "--runs", str(disk / "runs"),
        *(["--checkpoints", str(disk / "scratch")] if apart else []),
        "--environment", str(Path(sys.prefix)), "--lock", "envs/data.txt",
    ]  # fmt: skip


def events(folder: Path, name: str) -> list[dict[str, object]]:
    path = trace_path(folder, 0)
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    found = [json.loads(line) for line in lines if line.endswith("\n")]
    return [event for event in found if event["event"] == name]


def durable_step(folder: Path) -> int:
    return max((int(str(event["step"])) for event in events(folder, "durable")), default=0)


@pytest.mark.parametrize(
    ("strategy", "format", "apart"), [("native", "npz", False), ("async", "safetensors", True)]
)
def test_after_a_power_cut_a_run_goes_on_from_its_newest_durable_version(
    tmp_path: Path, dataset: Path, strategy: str, format: str, *, apart: bool
) -> None:
    image, disk = tmp_path / "disk", tmp_path / "mnt"
    disk.mkdir()
    make_disk(image)
    cell, seed = cell_of(strategy, format), random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    moments = random.Random(seed)
    run_folder = disk / "runs" / cell.id
    train = command(cell, dataset, disk, apart=apart)
    durable: list[int] = []
    try:
        with mounted(image, disk), started(train) as launcher:
            for number in range(CUTS):
                target = (number + moments.random()) * EPOCHS * STEPS / 2 / CUTS
                while durable_step(run_folder) <= target and launcher.poll() is None:
                    time.sleep(0.001)
                time.sleep(moments.uniform(0, 0.02))
                assert launcher.poll() is None, "the run was over before it was cut"
                copy = tmp_path / f"cut-{number}"
                durable.append(cut(image, copy, launcher.pid, lambda: durable_step(run_folder)))
            _, said = launcher.communicate()
            snapshot(image, tmp_path / "cut-after-its-end")
            assert launcher.returncode == 0, said
            whole = events(run_folder, "digest")[-1]["tensors"]
    except subprocess.CalledProcessError as error:
        print(f"no disk can be mounted here ({error.stderr}): the order of syncs is checked alone")
        check_order_of_syncs(tmp_path, dataset, cell)
        return
    for number, step in enumerate(durable):
        with after_cut(tmp_path / f"cut-{number}", disk):
            said = resumed(train)
            run = Run.read(run_folder)
            aside = [path.name for path in disk.rglob("*") if re.search("refused|kept-", path.name)]
            assert (run.manifest["attempts"], aside) == (2, []), said
            assert int(re.findall(r"goes on from .*/version-(\d+)", said)[0]) >= step
            assert sorted(run.traces[0].epochs) == [*range(EPOCHS)]
            assert run.ranks[0].steps.index.tolist() == [*range(EPOCHS * STEPS)]
            assert events(run_folder, "digest")[-1]["tensors"] == whole
    with after_cut(tmp_path / "cut-after-its-end", disk):
        assert Run.read(run_folder).manifest["attempts"] == 1
        (run_folder / "seal.json").unlink()  # as Snakemake does that has not seen the end
        assert "it is kept" in resumed(train)
        assert verify_seal(run_folder)


@contextmanager
def started(train: list[str]) -> Iterator[subprocess.Popen[str]]:
    """The launcher, which does not outlive the block."""
    launcher = subprocess.Popen(train, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        yield launcher
    finally:
        launcher.kill()
        launcher.wait()


@contextmanager
def after_cut(image: Path, at: Path) -> Iterator[None]:
    repair(image)
    with mounted(image, at):
        yield
    image.unlink()


def resumed(train: list[str]) -> str:
    """Carry the run out, and return its log."""
    done = subprocess.run(train, cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize(("strategy", "format"), [("native", "npz"), ("async", "safetensors")])
def test_all_that_a_restart_needs_is_synced_before_a_version_is_committed(
    tmp_path: Path, dataset: Path, strategy: str, format: str
) -> None:
    check_order_of_syncs(tmp_path, dataset, cell_of(strategy, format))


def check_order_of_syncs(tmp_path: Path, dataset: Path, cell: Cell) -> None:
    """As strace sees it. Syncs count when they have returned."""
    cell, log = dataclasses.replace(cell, epochs=3), tmp_path / "strace"
    tracing = [
        "strace",
        "-f",
        "-qq",
        "-y",
        "-e",
        "trace=/^(fsync|fdatasync|rename.*)$",
        "-o",
        str(log),
    ]
    resumed([*tracing, *command(cell, dataset, tmp_path, apart=True)])
    run, checkpoints = tmp_path / "runs" / cell.id, tmp_path / "scratch" / cell.id / "checkpoints"
    seen = [*calls(log)]
    commits = [
        at
        for at, call in enumerate(seen)
        if re.fullmatch(rf"{checkpoints}/version-\d+", call[-1]) and len(call) == 2
    ]
    assert len(commits) == 4
    before = seen[: commits[0]]
    for needed in (run, run.parent, checkpoints, checkpoints.parent, checkpoints / ".lock"):
        assert (str(needed),) in before
    manifest = (str(run / "manifest.json.partial"), str(run / "manifest.json"))
    assert before.index(manifest[:1]) < before.index(manifest)
    for last, commit in zip([0, *commits], commits, strict=False):
        assert (str(run / "trace-0.jsonl"),) in seen[last:commit]
        assert (str(checkpoints),) in seen[commit:]
    end = seen[commits[-1] :]
    order = [
        (str(run / "trace-0.jsonl"),), manifest[:1], manifest, (str(run / "launcher.jsonl"),),
        (str(run / "seal.json.partial"),), (str(run / "seal.json.partial"), str(run / "seal.json")), (str(run),),
    ]  # fmt: skip
    for call in order:
        end = end[end.index(call) + 1 :]


def calls(log: Path) -> Iterator[tuple[str, ...]]:
    """The paths of each sync (one) and rename (two), in the order in which they returned."""
    unfinished: dict[str, str] = {}
    for line in log.read_text().splitlines():
        process, _, call = line.partition(" ")
        if call.endswith("<unfinished ...>"):
            unfinished[process] = call
            continue
        if "resumed>" in call:
            call = unfinished.pop(process) + call
        if call.rstrip().endswith("= 0"):
            yield tuple(
                re.findall(r"<(/[^>]*)>", call)
                if "sync(" in call
                else re.findall(r'"([^"]*)"', call)
            )

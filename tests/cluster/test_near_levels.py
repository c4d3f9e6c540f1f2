"""A run that keeps its checkpoints in the memory of three nodes goes on from them, or after the loss of one from the shared folder, on a real scheduler."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ckptbench.common.files import read_json
from tests.cluster.commands import check, poll, run
from tests.cluster.near_run import BETWEEN, FAILURE, RANKS, STEPS, STRUCK
from tests.cluster.slurm_conf import NODES
from tests.study.warm.environments import warm_environments

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("near_run.py")
PATIENCE_S = 900


@pytest.fixture(scope="module")
def job(slurm: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of `near_run.py`, when it has ended."""
    folder = tmp_path_factory.mktemp("near")
    python = warm_environments() / "pytorch" / "bin" / "python"
    script = folder / "job.sh"
    script.write_text(
        f"#!/bin/sh\nexport PYTHONPATH={ROOT / 'src'}\n{sys.executable} {SCRIPT} {folder} {python}\n"
    )
    shape = [f"--nodes={len(NODES)}", "--ntasks-per-node=1", "--cpus-per-task=1", "--mem=4000"]
    output = folder / "output"
    submit = ["sbatch", "--parsable", "--time=30", f"--output={output}", *shape, str(script)]
    ident = check(submit, {}).strip()
    try:
        assert poll((folder / "outcome.json").exists, PATIENCE_S, 0.2), said(folder)
        outcome = json.loads((folder / "outcome.json").read_text())
        assert outcome["error"] is None, said(folder)
        yield folder
    finally:
        run(["scancel", ident], {})


def said(folder: Path) -> str:
    paths = [folder / "output", *sorted(folder.glob("logs-*/*.log"))]
    return "\n".join(f"{path.name}:\n{path.read_text()}" for path in paths if path.exists())


def events(folder: Path, history: str, rank: int) -> list[dict[str, Any]]:
    lines = (folder / history / f"trace-{rank}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_a_killed_run_goes_on_from_what_its_nodes_hold(job: Path) -> None:
    manifest = read_json(job / "killed_between" / "manifest.json")
    assert (manifest["status"], manifest["attempts"]) == ("complete", 2)
    (kill,) = manifest["failures"]
    took = kill["step"] // BETWEEN * BETWEEN  # the last one that had surely begun
    for rank in range(RANKS):
        trace = events(job, "killed_between", rank)
        assert {e["host"] for e in trace if e["event"] == "start"} == {NODES[rank]}
        loaded = [e["step"] for e in trace if e["event"] == "digest" and e["when"] == "loaded"]
        assert len(loaded) == 1
        assert loaded[0] in (took, took - BETWEEN)
    if loaded[0] % (2 * BETWEEN):  # else the shared folder has it too
        assert f"step {loaded[0]} is taken from the local tiers of the nodes" in said(job)


def test_it_ends_with_the_bits_of_a_run_that_lost_nothing(job: Path) -> None:
    for rank in range(RANKS):
        last = [
            [e for e in events(job, history, rank) if e["event"] == "digest" and e["when"] == "end"]
            for history in ("none", "killed_between")
        ]
        assert last[0][-1]["step"] == STEPS
        assert last[0][-1]["tensors"] == last[1][-1]["tensors"]


@pytest.mark.parametrize("struck", STRUCK)
def test_after_the_loss_of_a_node_the_run_goes_on_from_the_shared_folder(
    job: Path, struck: str
) -> None:
    manifest = read_json(job / struck / "manifest.json")
    assert (manifest["status"], manifest["attempts"]) == ("complete", 2)
    (strike,) = manifest["strikes"]
    assert (strike["kind"], strike["attempt"]) == ("kill", 1)
    for rank in range(RANKS):
        trace = events(job, struck, rank)
        (loaded,) = (e for e in trace if e["event"] == "digest" and e["when"] == "loaded")
        # The strike comes from outside, so some steps later on a busy machine.
        assert loaded["step"] >= FAILURE["step"] - 2 * BETWEEN
        assert loaded["step"] % (2 * BETWEEN) == 0
        whole = [e for e in events(job, "none", rank) if e.get("when") == "end"]
        own = [e for e in trace if e.get("when") == "end"]
        assert own[-1]["tensors"] == whole[-1]["tensors"]


def test_versions_on_the_nodes_are_the_states_of_their_steps(job: Path) -> None:
    for rank in range(RANKS):
        digests = [e for e in events(job, "none", rank) if e["event"] == "digest"]
        (version,) = [e for e in digests if e["when"] == "version" and e["level"] == "memory"]
        assert version["step"] == STEPS
        (saved,) = [e for e in digests if e["when"] == "saved" and e["step"] == STEPS]
        assert version["tensors"].items() <= saved["tensors"].items()


def test_nothing_is_left_on_the_nodes(job: Path) -> None:
    (own,) = (job / "memory").iterdir()
    assert list(own.iterdir()) == []

"""What happens when something goes wrong: one clear error, and nothing measured is lost.

In the real environments where it is tested which processes end with which others.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from checkout import Checkout, launchers_of, ranks_of, wait_for
from selection import FULL
from warm.environments import warm_environments

from ckptbench.common.files import file_sha256
from ckptbench.config.record import StudyRecord
from tests.living import is_running

PYTORCH = "config/studies/pytorch.yaml"
SMALL = {
    "matrix": {
        "framework": ["pytorch"], "model": "small_cnn", "dataset": "digits", "ranks": [2],
        "batch_size": 8, "epochs": 2, "interval": ["never", 1],
    },
    "repeats": 1,
    "training": {"steps_per_epoch": 40, "test_samples": 32},
}  # fmt: skip

pytestmark = pytest.mark.frameworks("pytorch")


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Checkout]:
    """A checkout with one study of two PyTorch runs; no rank outlives the test."""
    made = Checkout.make(tmp_path / "checkout")
    write_study(made, SMALL)
    yield made
    for pid in ranks_of(made.folder):
        os.kill(pid, signal.SIGKILL)


def write_study(checkout: Checkout, content: dict[str, object], name: str = PYTORCH) -> None:
    (checkout.folder / name).write_text(yaml.safe_dump(content))


def with_(section: str, **changes: object) -> dict[str, object]:
    return {**SMALL, section: {**SMALL[section], **changes}}  # type: ignore[dict-item]


def test_the_end_of_a_workflow_leads_to_the_tables_without_the_run_that_cannot_succeed(
    checkout: Checkout,
) -> None:
    never = {"failures": {"never": [{"step": 3, "moment": "save", "rank": 1}]}}
    matrix = {"interval": ["never", 1], "faults": ["none", {"listed": {"name": "never"}}]}
    content = {**with_("matrix", **matrix), **never, "training": {"steps_per_epoch": 4}}
    write_study(checkout, content)
    checkout.change_environments(warm_environments())
    failed = checkout.run("runs", study=PYTORCH)
    assert failed.returncode != 0
    end = failed.stdout.rpartition("Exiting because a job execution failed")[2]
    assert (
        "\nFAILED: pytorch-small_cnn-digits-r2-b8-n2-torch_save-e1-listed_name_never-rep0\n" in end
    )
    assert "did not occur: its step, save or recovery never came" in end
    assert "    its log: results/logs/train_cell/pytorch-" in end
    before = checkout.seals()
    assert re.search(rf"^{len(before)} of \d runs are finished. They stay", end, re.MULTILINE), end
    write_study(checkout, {**content, "exclude": [{"faults": {"listed": {"name": "never"}}}]})
    made = checkout.run("results/tables/runs.parquet", study=PYTORCH)
    assert made.returncode == 0, made.stdout
    assert set(checkout.table("runs")["run"]) == set(before)
    assert checkout.seals() == before


def test_a_rank_that_is_killed_fails_its_run_and_the_other_cells_go_on(checkout: Checkout) -> None:
    """And the workflow that repeats that run alone is killed before it trains: no process of it is left."""
    write_study(checkout, with_("training", steps_per_epoch=60))
    workflow = checkout.start("runs", study=PYTORCH)
    first = wait_for(lambda: ranks_of(checkout.folder), "the first rank")
    assert isinstance(first, list)
    os.kill(first[-1], signal.SIGKILL)
    assert workflow.wait(600) != 0
    output = (checkout.folder / "workflow.log").read_text()
    assert "was killed by SIGKILL, and not by the kernel for lack of memory; last lines:" in output
    assert len(checkout.seals()) == 1
    failed = json.loads(
        next(
            path / "manifest.json"
            for path in (checkout.folder / "results" / "runs").iterdir()
            if path.name not in checkout.seals()
        ).read_text()
    )
    assert failed["status"] == "failed"
    assert "SIGKILL" in failed["error"]
    sealed = checkout.seals()
    again = checkout.start("runs", study=PYTORCH)
    wait_for(lambda: launchers_of(checkout.folder, other_than=sealed), "its second launcher")
    kill(again, checkout, sealed)
    finish_without_repeating(checkout, sealed)


def kill(workflow: subprocess.Popen[bytes], checkout: Checkout, sealed: dict[str, int]) -> None:
    """SIGKILL the workflow: all that it has started ends, and no run to its end."""
    workflow.kill()
    workflow.wait()
    wait_for(lambda: not launchers_of(checkout.folder), "the launcher to end")
    wait_for(lambda: not ranks_of(checkout.folder), "the ranks to end")
    assert checkout.seals() == sealed, "an orphan has trained to its end"
    checkout.run("--unlock", study=PYTORCH)  # Snakemake's own lock outlives a SIGKILL and says so


def finish_without_repeating(checkout: Checkout, sealed: dict[str, int]) -> None:
    """Start the workflow, interrupt Snakemake alone, start it once more: no run that is sealed is trained again."""
    again = checkout.start("runs", study=PYTORCH)
    wait_for(lambda: ranks_of(checkout.folder), "a rank of the second run")
    assert sealed.items() <= checkout.seals().items()
    # Snakemake alone, not its process group: it waits for the launcher and does not note that the run has ended.
    again.send_signal(signal.SIGINT)
    again.wait()
    both = checkout.seals()
    assert len(both) == 2
    last = checkout.run("runs", study=PYTORCH)
    assert last.returncode == 0, last.stdout
    assert "it would be made from the same again: it is kept" in last.stdout
    assert checkout.seals() == both
    assert sealed.items() <= both.items()


MOMENTS = ("after the seal", *(["in training"] * 8 if FULL else []))


@pytest.mark.parametrize(("seed", "moment"), list(enumerate(MOMENTS)))
def test_a_killed_workflow_leaves_no_processes_and_repeats_no_finished_run(
    checkout: Checkout, seed: int, moment: str
) -> None:
    workflow = checkout.start("runs", study=PYTORCH)
    wait_for(checkout.seals, "the first run to end")
    sealed = checkout.seals()
    if moment == "in training":
        wait_for(lambda: ranks_of(checkout.folder), "a rank of the second run")
        time.sleep(np.random.default_rng(seed).uniform(0, 3))
    kill(workflow, checkout, sealed)
    again = checkout.run("runs", study=PYTORCH)
    assert again.returncode == 0, again.stdout
    assert len(checkout.seals()) == 2
    assert sealed.items() <= checkout.seals().items()


SLOW = """
import os, time
def build_wheel(*_):
    with open({pid!r}, "w") as file:
        file.write(f"{{os.getppid()}} {{os.getpid()}}\\n")
    time.sleep(1200)
"""


def test_an_environment_is_made_no_further_when_its_workflow_is_killed(checkout: Checkout) -> None:
    (checkout.folder / ".environments").unlink()
    environment, package = checkout.folder / ".environments" / "data", checkout.folder / "slow"
    package.mkdir()
    pid = checkout.folder / "pid"
    (package / "backend.py").write_text(SLOW.format(pid=str(pid)))
    (package / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "slow"\nversion = "1"\n'
    )
    lock = checkout.folder / "envs" / "data.txt"
    source = checkout.folder / "slow-1.tar.gz"
    with tarfile.open(source, "w:gz") as archive:
        archive.add(package, "slow-1")
    lock.write_text(f"slow @ {source.as_uri()} --hash=sha256:{file_sha256(source)}\n")
    target = str(environment.relative_to(checkout.folder) / "ready.json")
    workflow = checkout.start(target, study=PYTORCH)
    wait_for(lambda: pid.exists() and pid.read_text().endswith("\n"), "a package to be built")
    assert not is_repeat(checkout)
    uv, built = map(int, pid.read_text().split())
    assert is_running(uv)
    workflow.kill()
    workflow.wait()
    wait_for(lambda: not is_running(uv), "uv to end")
    os.kill(built, signal.SIGKILL)  # a build that uv has started would end by itself
    lock.write_text("")
    checkout.run("--unlock", study=PYTORCH)
    again = checkout.run(target, "--forcerun", "create_environment", study=PYTORCH)
    assert again.returncode == 0, again.stdout
    assert (environment / "ready.json").exists()
    assert is_repeat(checkout)


def is_repeat(checkout: Checkout) -> bool:
    """Whether the workflow that ran last would have trained sealed runs again."""
    return StudyRecord.read(checkout.folder / "results" / "study.json").repeat


def test_values_that_do_not_go_together_are_one_message(checkout: Checkout) -> None:
    write_study(checkout, {**SMALL, "exclude": [{"framework": "chainer"}]})
    planned = checkout.run("-n", study=PYTORCH)
    assert planned.returncode != 0
    assert (
        f"{PYTORCH}: exclude[0] is {{'framework': 'chainer'}}: no cell matches it" in planned.stdout
    )


def test_a_wrong_value_is_one_message(checkout: Checkout) -> None:
    write_study(checkout, with_("matrix", interval=["never", 1, -1]))
    result = checkout.run("-n", study=PYTORCH)
    assert result.returncode == 1
    assert f"{PYTORCH}: matrix.interval[2] is -1: use " in result.stdout
    assert "Traceback" not in result.stdout


def test_a_missing_dataset_is_one_message(checkout: Checkout) -> None:
    content = with_("matrix", dataset="cifar10")
    content["datasets"] = {"cifar10": {"archive": "nowhere/cifar-10-python.tar.gz"}}
    write_study(checkout, content)
    result = checkout.run(study=PYTORCH)
    assert result.returncode == 1
    assert (
        f"{PYTORCH}: datasets.cifar10.archive is 'nowhere/cifar-10-python.tar.gz': there is no such file"
        in result.stdout
    )
    assert "Traceback" not in result.stdout
    assert not checkout.seals()


def test_a_dataset_with_too_few_samples_is_one_message(checkout: Checkout) -> None:
    write_study(checkout, with_("matrix", batch_size=4096))
    result = checkout.run("runs", study=PYTORCH)
    assert result.returncode == 1
    assert "8192" in result.stdout
    assert not checkout.seals()

"""A study of an own training, as a user starts it: cells in blocks, a kill in the middle, failures, and changes."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
from pathlib import Path

import pytest

from ckptbench.analysis.tables.store import read_tables
from ckptbench.common.processes import living_with
from ckptbench.own.made import TABLES
from ckptbench.own.supervised import MARK
from tests.own_training import TRAINING, complete_runs, write_study
from tests.study.checkout import Checkout, wait_for

ORDER = [
    "baseline-rep0", "interval_5-rep0", "interval_10-rep0",
    "interval_10-rep1", "interval_5-rep1", "baseline-rep1",
]  # fmt: skip
KILLED = "interval_10-rep0"
TOLD = "told.txt"
"""What the workflow has printed."""
WAITING = TRAINING.replace(
    "with session()", 'import os\nwhile every == 10 and os.path.exists("wait"):\n    time.sleep(0.05)\nwith session()', 1
)  # fmt: skip
"""Runs with a checkpoint each ten steps wait as long as there is a file `wait`."""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkout, dict[str, float]]:
    """A checkout whose workflow was killed during its third run, and started again; and when its first runs had begun."""
    checkout = Checkout.make(tmp_path_factory.mktemp("own") / "checkout")
    study = write_study(checkout.folder, code=WAITING, repeats=2)
    (checkout.folder / "wait").touch()
    workflow = checkout.start(study=study)
    runs = checkout.folder / "results" / "own" / "runs"
    mark = str(runs / KILLED / "probe")
    wait_for(lambda: living_with(MARK, mark), "the third run")
    os.kill(workflow.pid, signal.SIGKILL)
    workflow.wait()
    wait_for(lambda: not living_with(MARK, mark), "the end of the command of a killed workflow")
    before = began(checkout)
    (checkout.folder / "wait").unlink()
    unlocked = checkout.run("--unlock", study=study)
    assert unlocked.returncode == 0, unlocked.stdout
    done = checkout.run(study=study)
    assert done.returncode == 0, done.stdout
    (checkout.folder / TOLD).write_text(done.stdout)
    return checkout, before


def began(checkout: Checkout) -> dict[str, float]:
    runs = complete_runs(checkout.folder)
    return {name: run["started_unix_s"] for name, run in runs.items()}


def test_runs_are_made_in_blocks_beside_their_baseline(
    killed: tuple[Checkout, dict[str, float]],
) -> None:
    checkout, _ = killed
    assert list(complete_runs(checkout.folder)) == ORDER


def test_what_was_complete_before_the_kill_is_not_made_again(
    killed: tuple[Checkout, dict[str, float]],
) -> None:
    checkout, before = killed
    assert list(before) == ORDER[: ORDER.index(KILLED)]
    assert before.items() <= began(checkout).items()
    again = checkout.run("-n", study="own.yaml")
    assert "Nothing to be done" in again.stdout, again.stdout


def test_all_that_a_study_writes_lies_in_its_folder(
    killed: tuple[Checkout, dict[str, float]],
) -> None:
    checkout, _ = killed
    assert [path.name for path in (checkout.folder / "results").iterdir()] == ["own"]
    assert not list((checkout.folder / "results").rglob("step-*"))


def test_the_study_ends_in_the_tables_of_the_main_study(
    killed: tuple[Checkout, dict[str, float]],
) -> None:
    folder = killed[0].folder / "results" / "own" / "tables"
    tables = read_tables(folder, TABLES)
    runs = tables["own_runs"].set_index("run")
    assert set(runs.index) == set(ORDER)
    assert runs["timed"].all(), list(runs["untimed"])
    assert dict(runs["checkpoints"]) == {name: 0 if "baseline" in name else 4 if "interval_5" in name else 2 for name in ORDER}  # fmt: skip
    saves = tables["own_saves"]
    assert saves["stall_s"].min() >= 0.002
    assert saves.loc[saves["step"] < 20, "hidden_s"].notna().all()
    assert saves["finished_s"].notna().all()
    overhead = tables["overhead"].set_index("interval")
    assert set(overhead.index) == {"s5", "s10"}
    assert overhead["paired_repeats"].eq(2).all()
    assert (overhead["in_run_lo"] < overhead["in_run"]).all()
    assert set(tables["decision_costs"]["strategy"]) == {"session"}
    assert set(tables["timeline"]["kind"]) >= {"step", "save", "write", "commit"}


def test_the_study_ends_in_figures_and_in_an_answer_that_is_printed(
    killed: tuple[Checkout, dict[str, float]],
) -> None:
    checkout, _ = killed
    own = checkout.folder / "results" / "own"
    for figure in ("overhead", "strategies", "stall", "timeline", "advice"):
        assert (own / "figures" / f"{figure}.pdf").read_bytes().startswith(b"%PDF")
        assert (own / "figures" / f"{figure}.png").stat().st_size > 5_000
        assert "2 repeats" in " ".join((own / "figures" / f"{figure}.txt").read_text().split())
    answer = (own / "answer.txt").read_text()
    assert answer.startswith("How often to checkpoint: train.py")
    assert "save_steps=" in answer or "how often to save cannot be told" in answer
    for words in ("every 5 steps loses", "every 10 steps loses", "stalls", "hides"):
        assert words in " ".join(answer.split())
    assert answer in (checkout.folder / TOLD).read_text()


def test_snakemake_leaves_the_commands_environment_as_the_user_has_it(
    killed: tuple[Checkout, dict[str, float]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snakemake sets numbers of threads and TMPDIR for its jobs, and the rules put their Python before PATH."""
    checkout = Checkout.make(tmp_path / "checkout")
    shown = "import json, os\nprint(json.dumps(dict(os.environ)))\n"
    study = write_study(checkout.folder, code=shown + TRAINING, values={"interval": [5]})
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "7")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    done = checkout.run("results/own/runs/interval_5-rep0/seal.json", study=study)
    assert done.returncode == 0, done.stdout
    output = checkout.folder / "results" / "own" / "runs" / "interval_5-rep0" / "output.txt"
    seen = json.loads(output.read_text().splitlines()[0])
    assert (seen["PATH"], seen["MKL_NUM_THREADS"], seen["TMPDIR"]) == ("/usr/bin:/bin", "7", str(tmp_path))  # fmt: skip
    assert "OMP_NUM_THREADS" not in seen


def test_a_cell_that_fails_leaves_the_others_and_a_changed_command_makes_its_own_cells_again(
    killed: tuple[Checkout, dict[str, float]],
) -> None:
    """The last test of this checkout: it changes the study."""
    checkout, _ = killed
    before = began(checkout)
    failing = {"interval": {"10": "10", "5": "five"}}
    study = write_study(checkout.folder, repeats=2, values=failing)
    dry = checkout.run("-n", study=study)
    assert len(re.findall(r"^Job \d+: train interval_5-rep", dry.stdout, re.MULTILINE)) == 2
    done = checkout.run(study=study)
    assert done.returncode != 0
    for repeat in range(2):
        told = done.stdout.partition(f"FAILED: interval_5-rep{repeat}")[2].splitlines()[1]
        assert told.startswith("    LaunchError: the command ended with exit status 1: ValueError: invalid literal for int()")  # fmt: skip
    kept = {name: when for name, when in before.items() if "interval_5" not in name}
    assert began(checkout) == kept
    assert "4 of 6 runs are finished. They stay and are not repeated." in done.stdout


def test_a_config_that_is_wrong_is_refused_in_one_line_before_anything_runs(tmp_path: Path) -> None:
    checkout = Checkout.make(tmp_path / "checkout")
    study = write_study(checkout.folder, command="no-such-program {folder} {interval}")
    done = checkout.run(study=study)
    assert done.returncode != 0
    assert "own.yaml: the program of own.command, no-such-program, is not there" in done.stdout
    on_nodes = dataclasses.replace(checkout, profile="slurm")
    assert "train interval_5-rep0: no-such-program {folder} 5" in on_nodes.run("-n", study=study).stdout  # fmt: skip
    study = write_study(checkout.folder, values={"interval": [5], "lr": [1]})
    assert "own.yaml: own.values.lr is [1]: these values have no place" in checkout.run(study=study).stdout  # fmt: skip
    assert not (checkout.folder / "results").exists()

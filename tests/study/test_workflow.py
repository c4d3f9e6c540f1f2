"""The workflow itself: linted, formatted, and in step with the library."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from checkout import ROOT, Checkout
from selection import FULL

from ckptbench.analysis.tables.registry import DECIDED, TABLES
from ckptbench.common.files import read_json
from ckptbench.config.expansion import expand
from ckptbench.config.study import load_config
from tests.study.warm.environments import warm_snakemake

# The one lint that does not fit: each rule's software is in envs/*.txt, installed by rule create_environment.
ENVIRONMENTS_ARE_RULES = "Specify a conda environment or container for each rule."


def test_the_linter_finds_nothing_but_that_environments_are_not_condas() -> None:
    command = [warm_snakemake(), "-m", "snakemake", "--lint"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lints = re.findall(r"^    \* (.*):$", done.stderr, re.MULTILINE)
    assert "Lints for rule" in done.stderr
    assert set(lints) == {ENVIRONMENTS_ARE_RULES}


def test_the_rules_know_every_table_of_the_registry(tmp_path: Path) -> None:
    listed = Checkout.make(tmp_path / "checkout").run("-n").stdout
    for name in (*TABLES, *DECIDED):
        assert f"results/tables/{name}.parquet" in listed


@pytest.mark.parametrize("study", ["rojas-power9", "rojas-sizes"])
def test_the_published_matrices_can_be_planned(tmp_path: Path, study: str) -> None:
    """That of ABCI is planned with the profiles of clusters: test_profiles.py."""
    path = f"config/studies/{study}.yaml"
    checkout = Checkout.make(tmp_path / "checkout")
    planned = checkout.run("-n", study=path)
    assert planned.returncode == 0, planned.stdout
    cells = expand(load_config(yaml.safe_load((checkout.folder / path).read_text())))
    counted = re.search(r"^train_cell +(\d+)$", planned.stdout, re.MULTILINE)
    assert counted is not None
    assert int(counted[1]) == len(cells)


def test_a_plan_has_ten_lines_and_makes_nothing(tmp_path: Path) -> None:
    checkout = Checkout.make(tmp_path / "checkout")
    before = {path.name for path in checkout.folder.iterdir()}
    planned = checkout.make_target("plan", "CONFIG=config/studies/rojas-abci.yaml", "PROFILE=slurm")
    assert planned.returncode == 0, planned.stdout
    lines = planned.stdout.splitlines()
    assert len(lines) <= 10
    assert sum("420 runs, 0 of them done" in line for line in lines) == 1
    assert lines[-1].startswith("node-hours   at most 15,240: ")
    assert {path.name for path in checkout.folder.iterdir()} - before <= {".snakemake"}

    wrong = checkout.folder / "wrong.yaml"
    wrong.write_text("repeats: none\n")
    refused = checkout.make_target("plan", f"CONFIG={wrong}")
    assert refused.returncode != 0
    (told,) = (line for line in refused.stdout.splitlines() if "repeats" in line)
    assert "wrong.yaml" in told
    others = [line for line in refused.stdout.splitlines() if not line.startswith("make")]
    assert len(others) <= 3  # with Snakemake's own


def test_a_framework_whose_python_is_missing_is_left_out_where_the_config_says_so(
    tmp_path: Path,
) -> None:
    """Else nothing starts."""
    (nothing := tmp_path / "environments").mkdir()
    checkout = Checkout.make(tmp_path / "checkout", environments=nothing)
    lock = checkout.folder / "envs" / "chainer.txt"
    lock.write_text(lock.read_text().replace("# python: 3.11", "# python: 3.99"))
    study = checkout.folder / "mine.yaml"
    study.write_text("matrix: {framework: [chainer, pytorch], model: small_cnn}\n")
    started = checkout.run(study="mine.yaml")
    assert started.returncode != 0
    assert "chainer.txt is for Python 3.99, which is not on this machine: load it" in started.stdout
    assert not (checkout.folder / "results" / "study.json").exists()
    assert not [*nothing.iterdir()]

    study.write_text("matrix: {framework: [chainer, pytorch, available], model: small_cnn}\n")
    planned = checkout.make_target("plan", "CONFIG=mine.yaml").stdout
    assert "Left out: chainer, which needs Python 3.99: load it (module load" in planned
    assert "12 runs" in planned


def test_numbers_with_a_point_and_large_ones_are_runs_of_their_own(tmp_path: Path) -> None:
    checkout = Checkout.make(tmp_path / "checkout")
    traces = ["{weibull: {shape: 0.5}}", *(f"{{exponential: {{mean_s: {mean}}}}}" for mean in ("1000000", "123457", "123456.7", "7.50"))]  # fmt: skip
    matrix = f"{{framework: pytorch, model: small_cnn, interval: 1, faults: [{', '.join(traces)}]}}"
    study = checkout.folder / "mine.yaml"
    study.write_text(f"matrix: {matrix}\nrepeats: 1\n")
    planned = checkout.run("-n", study="mine.yaml")
    assert planned.returncode == 0, planned.stdout
    struck = set(re.findall(r"train \S+-e1-(\S+)-rep0$", planned.stdout, re.MULTILINE))
    assert struck == {
        "weibull_shape_0.5", "exponential_mean_s_1000000", "exponential_mean_s_123457", "exponential_mean_s_123456.7",
        "exponential_mean_s_7.5",
    }  # fmt: skip


def test_costs_and_a_rate_of_ones_own_are_enough_to_decide_and_other_costs_decide_anew(
    tmp_path: Path,
) -> None:
    """Costs of the same name are others where their content is, however old the file is."""
    checkout = Checkout.make(tmp_path / "checkout")
    mine, numbers = checkout.folder / "mine.yaml", checkout.folder / "numbers.yaml"
    mine.write_text("decision: {gpus: [2048], rate: mine}\n")
    rate = {"title": "our cluster", "counts": "ends", "failures": 7, "days": 30, "gpus": 256}
    (checkout.folder / "config/failures/mine.yaml").write_text(yaml.safe_dump(rate))
    costs = yaml.safe_load((ROOT / "config/costs-example.yaml").read_text())
    numbers.write_text(yaml.safe_dump({**costs, "title": "the first training"}))
    arguments = ("decide", f"CONFIG={mine}", f"NUMBERS={numbers}")
    decided = checkout.make_target(*arguments)
    assert decided.returncode == 0, decided.stdout
    assert "How often to checkpoint: the first training" in decided.stdout
    assert re.findall(r"^[\d,]+ GPUs.*", decided.stdout, re.MULTILINE) == ["512 GPUs", "2,048 GPUs, projected"]  # fmt: skip
    assert "Failures as in our cluster" in decided.stdout
    assert checkout.is_drawn("advice")
    assert not checkout.seals()

    numbers.write_text(yaml.safe_dump({**costs, "title": "the second training"}))
    os.utime(numbers, (0, 0))
    decided = checkout.make_target(*arguments)
    assert "checkpoint: the second training" in decided.stdout
    numbers.unlink()
    refused = checkout.make_target(*arguments)
    assert refused.returncode != 0
    assert re.search(r"decision\.numbers is .*: there is no such file", refused.stdout)


def test_a_dataset_of_other_settings_is_made_again_with_its_runs(tmp_path: Path) -> None:
    checkout = Checkout.make(tmp_path / "checkout")
    study = checkout.folder / "mine.yaml"
    content = yaml.safe_load((ROOT / "config/studies/tiny.yaml").read_text())
    content["matrix"] |= {"framework": "pytorch", "dataset": "synthetic"}
    size = {"train_samples": 64, "test_samples": 32}
    study.write_text(yaml.safe_dump({**content, "datasets": {"synthetic": size}}))
    dataset = "results/datasets/synthetic/dataset.json"
    assert checkout.run(dataset, study="mine.yaml").returncode == 0
    cells = expand(load_config(yaml.safe_load(study.read_text())))
    for cell in cells:
        folder = checkout.folder / "results/runs" / cell.id
        folder.mkdir(parents=True)
        (folder / "seal.json").touch()
    os.utime(checkout.folder / dataset)
    assert "Nothing to be done" in checkout.run("-n", "runs", study="mine.yaml").stdout
    study.write_text(yaml.safe_dump({**content, "datasets": {"synthetic": {**size, "seed": 3}}}))
    planned = checkout.run("-n", "runs", study="mine.yaml").stdout
    assert re.search(r"^prepare_dataset +1$", planned, re.MULTILINE), planned
    assert re.search(rf"^train_cell +{len(cells)}$", planned, re.MULTILINE), planned


def test_a_user_without_a_name_or_a_home_folder_trains(tmp_path: Path) -> None:
    """As in a container. Paths of temporary files are too long for sockets."""
    checkout = Checkout.make(tmp_path / "checkout")
    content = yaml.safe_load((ROOT / "config/studies/tiny.yaml").read_text())
    content["matrix"] |= {"framework": "pytorch", "ranks": 2, "interval": 1}
    (checkout.folder / "mine.yaml").write_text(yaml.safe_dump({**content, "repeats": 1}))
    run = "results/runs/pytorch-small_cnn-digits-r2-b8-n2-torch_save-e1-rep0"
    nobody = ["unshare", "--user", "--map-user=54321", "--map-group=54321"]
    temporary = tmp_path / (180 * "t")
    temporary.mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": "/proc", "TMPDIR": str(temporary)}
    done = subprocess.run(
        [*nobody, *checkout.command(f"{run}/seal.json", study="mine.yaml")],
        cwd=checkout.folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert read_json(checkout.folder / run / "manifest.json")["status"] == "complete"


MODULE = """
configfile: "mine.yaml"
module bench:
    snakefile: "{root}/Snakefile"
    config: config
use rule * from bench as bench_*
rule all:
    default_target: True
    input: rules.bench_all.input
onstart:
    bench.write_study()
"""


def test_another_workflow_can_have_it_as_a_module(tmp_path: Path) -> None:
    """What no config names, such as failure rates, is that of the clone."""
    (tmp_path / "Snakefile").write_text(MODULE.format(root=ROOT))
    mine = yaml.safe_load((ROOT / "config/studies/tiny.yaml").read_text())
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(mine))
    command = [warm_snakemake(), "-m", "snakemake", "--cores", "1", "-n"]
    planned = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert planned.returncode == 0, planned.stdout + planned.stderr
    jobs = set(re.findall(r"^(\w+) +\d+$", planned.stdout, re.MULTILINE))
    assert {"bench_create_environment", "bench_train_cell", "bench_decide", "all"} <= jobs
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("moved", ['prefix: "sub"', 'replace_prefix: {"results/": "out/"}', 'replace_prefix: {".environments/": "e/"}'])  # fmt: skip
def test_a_module_whose_outputs_would_be_looked_for_elsewhere_is_refused_when_planned(
    tmp_path: Path, moved: str
) -> None:
    text = MODULE.format(root=ROOT).replace("config: config", f"config: config\n    {moved}")
    (tmp_path / "Snakefile").write_text(text)
    shutil.copy(ROOT / "config/studies/tiny.yaml", tmp_path / "mine.yaml")
    command = [warm_snakemake(), "-m", "snakemake", "--cores", "1", "-n"]
    planned = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert planned.returncode != 0
    assert re.search(r"^as a module ckptbench writes \S+, and .*: leave out prefix and replace_prefix; ", planned.stdout + planned.stderr, re.MULTILINE)  # fmt: skip


@pytest.mark.parametrize("damage", ["missing", "fifo", "later"])
def test_the_log_of_a_rate_is_read_when_the_plan_is_made(tmp_path: Path, damage: str) -> None:
    checkout = Checkout.make(tmp_path / "checkout")
    rates = checkout.folder / "config/failures"
    rate = {"title": "ours", "counts": "ends", "log": "log.csv", "gpus": 8}
    rate |= {"from": "2024-01-01", "to": "2024-02-01"}
    (rates / "ours.yaml").write_text(yaml.safe_dump(rate))
    if damage == "fifo":
        os.mkfifo(rates / "log.csv")
    elif damage == "later":
        (rates / "log.csv").write_text("time\n2024-01-05\n2024-03-03\n")
    refused = checkout.run("-n")
    assert refused.returncode != 0
    assert "config/failures/log.csv" in refused.stdout


def test_nothing_starts_where_an_environment_needs_another_python(tmp_path: Path) -> None:
    (environments := tmp_path / "environments").mkdir()
    checkout = Checkout.make(tmp_path / "checkout", environments=environments)
    lock = checkout.folder / "envs/chainer.txt"
    lock.write_text(lock.read_text().replace("# python: 3.11\n", "# python: 3.99\n"))
    refused = checkout.run("environments")
    assert refused.returncode != 0
    assert (
        "envs/chainer.txt is for Python 3.99, which is not on this machine: load it"
        in refused.stdout
    )
    assert not [*environments.iterdir()]


def test_an_audit_of_one_repeat_is_refused(tmp_path: Path) -> None:
    refused = Checkout.make(tmp_path / "checkout").make_target("audit", "REPEATS=1")
    assert refused.returncode != 0
    assert "use a whole number from 2: one repeat has no interval" in refused.stdout


if (
    FULL
):  # It trains for a minute. Otherwise tests/unit/test_audit.py runs the verb that the rule calls.

    def test_the_audit_of_a_machine_needs_no_study(tmp_path: Path) -> None:
        checkout = Checkout.make(tmp_path / "checkout")
        audited = checkout.make_target("audit", "REPEATS=2")
        assert audited.returncode == 0, audited.stdout
        checks = checkout.table("audit")
        assert set(checks["verdict"]) <= {"holds", "fails", "unknown"}
        # What does not depend on other programs, which here are other tests.
        (stall,) = checks[(checks["unit"] == "s") & (checks["truth"] == 0.1)].to_dict("records")
        assert stall["value"] == pytest.approx(0.1, abs=0.02)
        assert not list((checkout.folder / "results/runs").iterdir())
        assert f" of {len(checks)} checks hold, " in audited.stdout
        assert all(subject in audited.stdout for subject in checks["subject"])


def test_without_tables_and_costs_there_is_one_line_on_what_to_do(tmp_path: Path) -> None:
    refused = Checkout.make(tmp_path / "checkout").make_target("decide")
    assert refused.returncode != 0
    assert "run a study first (make study), or give your own costs" in refused.stdout


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("{rate: nowhere}", "decision.rate is 'nowhere'"),
        ("{rates: envs}", "decision.rates is 'envs': it has no file *.yaml"),
        ("{gpus: [1]}", "decision.gpus[0] is 1"),
        ("{survivable: 0.5}", "decision.survivable is 0.5: survivable was removed after"),
    ],
)
def test_a_wrong_decision_is_refused_before_anything_runs(
    tmp_path: Path, section: str, words: str
) -> None:
    checkout = Checkout.make(tmp_path / "checkout")
    wrong = checkout.folder / "config/studies/wrong.yaml"
    wrong.write_text((ROOT / "config/studies/tiny.yaml").read_text() + f"\ndecision: {section}\n")
    refused = checkout.run("-n", study="config/studies/wrong.yaml")
    assert refused.returncode != 0
    assert words in refused.stdout

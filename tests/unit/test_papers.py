"""The table of the papers' experiments names what is there: studies, the figures and tables that they make, and what they take."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import yaml

from ckptbench.analysis.tables.registry import TABLES
from ckptbench.config.expansion import expand
from ckptbench.config.outlook import Machine, outlook
from ckptbench.config.study import load_config
from ckptbench.report.answer.papers import EXPERIMENTS, GPU_STUDIES, SECTION, Experiment
from ckptbench.report.figures import FIGURES

ROOT = Path(__file__).resolve().parents[2]
CLAIMS = ("README.md", "CITATION.cff", "docs", "config")
each_experiment = pytest.mark.parametrize("each", EXPERIMENTS, ids=lambda each: each.study)


def study(each: Experiment) -> str:
    return (ROOT / "config" / "studies" / f"{each.study}.yaml").read_text(encoding="utf-8")


@each_experiment
def test_each_study_makes_the_figures_and_tables_of_its_row(each: Experiment) -> None:
    cells = expand(load_config(yaml.safe_load(study(each))))
    assert all(FIGURES[name].is_of(cells) for name in each.figures)
    assert set(each.tables) <= set(TABLES)
    assert len(cells) == each.runs


@each_experiment
def test_each_study_file_names_its_figures_and_its_command(each: Experiment) -> None:
    header = study(each).split("\naccelerator:")[0]
    assert f"# Figures (docs/findings.md): {', '.join(each.figures)}.\n" in header
    assert f"--configfile config/studies/{each.study}.yaml\n" in header


@each_experiment
def test_node_hours_are_those_of_the_profile(each: Experiment) -> None:
    profile = yaml.safe_load((ROOT / "profiles" / "abci" / "config.yaml").read_text())
    on_a_node = profile["submitit-tasks-per-node"]
    runtime = dict(line.split("=") for line in profile["default-resources"])["runtime"]
    nodes = sum(math.ceil(cell.ranks / on_a_node) for cell in expand(load_config(yaml.safe_load(study(each)))))  # fmt: skip
    assert each.node_hours == nodes * int(runtime) / 60


@each_experiment
def test_bytes_are_those_of_the_plan(each: Experiment, tmp_path: Path) -> None:
    """At once: of one run after the other, or where it needs GPUs of the jobs of the profile `abci`."""
    config = load_config(yaml.safe_load(study(each)))
    assert each.needs_gpus == (config.accelerator == "cuda")
    jobs = yaml.safe_load((ROOT / "profiles" / "abci" / "config.yaml").read_text())["jobs"]
    machine = Machine(at_once=jobs, is_cluster=True) if each.needs_gpus else Machine()
    lines = outlook(each.study, config, expand(config), machine, tmp_path)
    (told,) = (line for line in lines if line.startswith("checkpoints "))
    assert f" {each.written} written, at most {each.at_once} on the disk at once" in told


def test_studies_of_cpus_go_to_nodes_without_gpus() -> None:
    profile = yaml.safe_load((ROOT / "profiles" / "abci" / "config.yaml").read_text())
    assert '"rt_HC": 1' in str(profile["submitit-options"]), "each run has one such node"
    ranks_per_node = profile["submitit-tasks-per-node"]
    for each in EXPERIMENTS:
        cells = expand(load_config(yaml.safe_load(study(each))))
        assert each.needs_gpus or max(cell.ranks for cell in cells) <= ranks_per_node
        assert each.needs_gpus == (f"`{each.study}`" in GPU_STUDIES)
    assert f"{GPU_STUDIES} need GPUs" in SECTION
    command = "    snakemake --profile abci {}--configfile config/studies/{}.yaml"
    assert command.format("--submitit-queue rt_HC ", "rojas-sizes") in SECTION
    assert command.format("", "rojas-abci") in SECTION


def test_no_finding_asks_for_tables_that_another_one_has() -> None:
    """A page that says so of one study in one place shows numbers of it in another."""
    page = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    _, *findings = re.split(r"^\*\*", page.partition("## Findings")[2], flags=re.MULTILINE)
    measured = {study for each in findings if re.search(r" \[\d\]\.$", each, re.MULTILINE) for study in re.findall(r"\(`(config/\S+)`\)\.$", each, re.MULTILINE)}  # fmt: skip
    assert "config/studies/findings.yaml" in measured
    asked = {study for each in findings for study in re.findall(r"No table shows it: run `(\S+)`", each)}  # fmt: skip
    assert not asked & measured


def test_the_small_form_of_the_first_row_has_the_runs_that_the_page_says() -> None:
    default = yaml.safe_load((ROOT / "config" / "config.yaml").read_text(encoding="utf-8"))
    assert f"`config/config.yaml` ({len(expand(load_config(default)))} runs" in SECTION


def test_pages_say_what_the_results_lack_and_what_ran_on_a_gpu() -> None:
    page = (ROOT / "docs" / "determinism.md").read_text(encoding="utf-8")
    cells = expand(load_config(yaml.safe_load((ROOT / "config/studies/determinism.yaml").read_text())))  # fmt: skip
    gpts = sum(cell.model == "gpt_baby" for cell in cells)
    assert f"Its {gpts} runs of `gpt_baby` are newer" in page
    assert "restarts by six strategies" in page
    assert "six strategies restarted PyTorch [bit for bit](docs/determinism.md" in (ROOT / "README.md").read_text()  # fmt: skip


def test_the_page_on_configs_has_what_the_default_config_sets() -> None:
    page = (ROOT / "config" / "README.md").read_text(encoding="utf-8")
    default = yaml.safe_load((ROOT / "config" / "config.yaml").read_text(encoding="utf-8"))
    (told,) = re.findall(r"and sets (.*?)\.$", page, re.DOTALL | re.MULTILINE)
    said = dict(yaml.safe_load(each).popitem() for each in re.findall(r"`(.*?)`", told))
    known = {**default["matrix"], **default["training"]}
    assert said == {key: known[key] for key in said}
    assert set(default["training"]) | {"batch_size", "epochs", "interval"} == set(said)


def test_every_study_after_a_paper_has_a_row() -> None:
    named = {
        path.stem
        for path in (ROOT / "config" / "studies").glob("*.yaml")
        if re.search(r"Rojas|Nicolae|Amatya", path.read_text().split("\naccelerator:")[0])
    }
    assert named == {each.study for each in EXPERIMENTS}


def test_the_page_begins_with_the_figures() -> None:
    page = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    assert SECTION in page
    assert re.findall("^## .*", page, re.MULTILINE)[0] == "## Figures"


def test_no_page_says_that_a_paper_is_reproduced() -> None:
    paths = [path for name in CLAIMS for path in ([ROOT / name] if (ROOT / name).is_file() else (ROOT / name).rglob("*"))]  # fmt: skip
    pages = [path for path in paths if path.suffix in {".md", ".cff", ".yaml"}]
    saying = [
        path.name
        for path in pages
        if re.search(r"\breproduces\b|experiments it repeats", path.read_text(encoding="utf-8"))
    ]  # fmt: skip
    assert not saying, (
        "compared was with abstracts and descriptions: say what is the same, and what differs"
    )

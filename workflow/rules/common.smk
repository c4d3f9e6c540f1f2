# The config, checked, the cells it expands into, and what the rules ask of them.
import dataclasses
import json
import os
import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

from ckptbench import expansion
from ckptbench.config import load_config
from ckptbench.errors import CkptbenchError
from ckptbench.figures import FIGURES
from ckptbench.manifest import write_json

# `python` in a rule is the interpreter that runs Snakemake, whether its environment is active or not.
shell.prefix(f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH; ")


def get_config_files():
    """Those of --configfile override the Snakefile's, which Snakemake appends to them."""
    *given, default = [os.path.relpath(path) for path in workflow.configfiles]
    return [Path(default), *map(Path, given)]


try:
    CONFIG = load_config(config, get_config_files())
except CkptbenchError as error:
    raise WorkflowError(str(error)) from None

try:
    CELLS = {cell.id: cell for cell in expansion.expand(CONFIG)}
except CkptbenchError as error:
    # Values that do not go together: the files are to blame together.
    files = " and ".join(map(str, get_config_files()))
    raise WorkflowError(f"{files}: {error}") from None

TRAINING = json.dumps(dataclasses.asdict(CONFIG.training_of_cells()))
# The cells are in the order to run them, each baseline beside what is compared with it.
PRIORITY = {cell_id: len(CELLS) - place for place, cell_id in enumerate(CELLS)}

STUDY = "results/study.json"
# The tests hold these names against those of the schema in ckptbench.analysis, whose import is slow.
COLLECTED = [
    "runs",
    "steps",
    "epochs",
    "checkpoints",
    "evaluations",
    "phases",
    "digests",
    "kills",
    "values",
]
DERIVED = [
    "overhead",
    "sizes",
    "scaling",
    "checkpoint_cost",
    "stall",
    "training",
    "resume_proof",
    "divergence",
    "determinism_cost",
    "restore",
    "provenance",
]


wildcard_constraints:
    cell=r"[A-Za-z0-9_-]+",
    environment=r"[a-z_-]+",
    dataset=r"[a-z0-9]+",


def get_all_environments():
    names = dict.fromkeys(cell.environment for cell in CELLS.values())
    return [f".environments/{name}/ready.json" for name in ("data", *names)]


def get_all_seals():
    return [f"results/runs/{cell_id}/seal.json" for cell_id in CELLS]


def get_all_tables():
    return expand("results/tables/{table}.parquet", table=[*COLLECTED, *DERIVED])


def get_all_figures():
    """Those that some cell of the study gives something to show."""
    shown = [
        name
        for name, entry in FIGURES.items()
        if any(entry.shows(cell) for cell in CELLS.values())
    ]
    return expand(
        "results/figures/{figure}.{format}", figure=shown, format=["pdf", "png"]
    )


def get_recipe(wildcards):
    """What of an environment is compiled by a recipe of ours."""
    if wildcards.environment.startswith("horovod"):
        return ["src/ckptbench/horovod_build.py"]
    return []


def get_dataset_settings(wildcards):
    section = getattr(CONFIG.datasets, wildcards.dataset, None)
    return section.model_dump_json(exclude_none=True) if section else "{}"


def get_environment(wildcards):
    return f".environments/{CELLS[wildcards.cell].environment}/ready.json"


def get_lock(wildcards):
    return f"envs/{CELLS[wildcards.cell].environment}.txt"


def get_dataset(wildcards):
    return f"results/datasets/{CELLS[wildcards.cell].dataset}/dataset.json"


def get_cell(wildcards):
    return json.dumps(CELLS[wildcards.cell].to_json())


def get_checkpoints(wildcards):
    return str(CONFIG.checkpoints.folder or "results/runs")


def get_priority(wildcards):
    return PRIORITY[wildcards.cell]


def get_ranks(wildcards):
    """On a cluster: the tasks of the run's job."""
    return CELLS[wildcards.cell].ranks


def get_gpus(wildcards):
    cell = CELLS[wildcards.cell]
    return cell.ranks if cell.accelerator == "cuda" else 0


def get_threads(wildcards):
    """This machine's cores; on a cluster a profile's cpus_per_task says what a rank gets."""
    return workflow.cores if workflow.local_exec else 1


def get_sources(package, *endings):
    """The library files whose edit makes anew what they compute."""
    folder = Path("src/ckptbench") / package
    return sorted(
        str(path) for ending in endings for path in folder.glob(f"*.{ending}")
    )


def write_study():
    """What runs look up when they start: no change of it is a reason to run anything again."""
    Path(STUDY).parent.mkdir(parents=True, exist_ok=True)
    write_json(
        Path(STUDY),
        {
            "cells": list(CELLS),
            "resume": CONFIG.resume,
            "keep_after_run": CONFIG.checkpoints.keep_after_run,
            "run_minutes": CONFIG.limits.run_minutes,
        },
    )

# The config, checked, and the cells it expands into; what the rules ask of them.
import dataclasses
import json
import os
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

from ckptbench.config import load_config
from ckptbench.errors import CkptbenchError
from ckptbench.expansion import expand
from ckptbench.manifest import write_json

PYTHON = sys.executable
STUDY = "results/study.json"


def get_config_files():
    """Those of --configfile override the Snakefile's, which Snakemake appends to them."""
    *given, default = [os.path.relpath(path) for path in workflow.configfiles]
    return [Path(default), *map(Path, given)]


try:
    CONFIG = load_config(config, get_config_files())
    CELLS = {cell.id: cell for cell in expand(CONFIG)}
except CkptbenchError as error:
    raise WorkflowError(str(error)) from None

TRAINING = json.dumps(dataclasses.asdict(CONFIG.training_of_cells()))
# The cells are in the order to run them, each baseline beside what is compared with it.
PRIORITY = {cell_id: len(CELLS) - place for place, cell_id in enumerate(CELLS)}


wildcard_constraints:
    cell=r"[A-Za-z0-9_-]+",
    environment=r"[a-z-]+",
    dataset=r"[a-z0-9]+",


def get_all_environments():
    names = dict.fromkeys(cell.environment for cell in CELLS.values())
    return [f".environments/{name}/ready.json" for name in ("data", *names)]


def get_all_seals():
    return [f"results/runs/{cell_id}/seal.json" for cell_id in CELLS]


def write_study():
    """What a run's progress line counts: the ids of all cells, in the order they run."""
    Path(STUDY).parent.mkdir(parents=True, exist_ok=True)
    write_json(Path(STUDY), {"cells": list(CELLS)})

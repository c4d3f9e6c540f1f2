# Reads and checks the config, expands it into cells, and defines the functions that the rules of both studies call.
import json
import os
import shlex
import sys
import time
from pathlib import Path

from snakemake.exceptions import WorkflowError

from ckptbench.analysis.tables.registry import EVERY
from ckptbench.decide.failure_file import read_failure_files
from ckptbench.errors import CkptbenchError
from ckptbench.machine.user import supply_user
from ckptbench.matrix.variant import NAME
from ckptbench.study.commands import check_input, shell_prefix
from ckptbench.remedies import blame
from ckptbench.study.failed import FailedJob
from ckptbench.study.planning import check_source
from ckptbench.study.sources import sources_of

supply_user(os.environ, Path(".snakemake/caches"))


def get_config_files():
    """The config files in the order of their weight: later ones override. Snakemake lists the Snakefile's file last."""
    given = workflow.overwrite_configfiles
    own = workflow.configfiles[len(given) :]
    return [
        Path(path if near.startswith("..") else near)
        for path in (*own, *given)
        for near in [os.path.relpath(path)]
    ]


def plan():
    """The config and its cells, of the study that the config asks for."""
    if not IS_OWN:
        from ckptbench.study.planning import plan_study

        return plan_study(config, get_config_files(), Path(DATASETS))
    from ckptbench.own.planning import plan_own
    from ckptbench.own.surroundings import given_to

    # config/config.yaml is about the other study, unless the user has written `own` into it.
    given = workflow.config_settings.overwrite_config
    # Profiles of clusters set the number of jobs; which executor it will be is not known yet.
    is_here = workflow.resource_settings.nodes is None
    is_given = "own" in given
    return plan_own(
        given if is_given else config,
        (
            [*map(Path, workflow.overwrite_configfiles)]
            if is_given
            else get_config_files()
        ),
        environment=given_to(os.getpid()) if is_here else None,
    )


IS_OWN = "own" in config
STARTED = time.time()
DATASETS = "results/datasets"
RUNS = "results/own/runs" if IS_OWN else "results/runs"

# `python` in a rule is the interpreter that runs Snakemake, even if its environment is not active. WORKFLOW is this
# process. A process that a rule starts cannot find out its parent's id by itself if this process has ended by then.
try:
    check_source(Path.cwd())
    shell.prefix(shell_prefix(Path(sys.executable), os.getpid()))
    CONFIG, cells = plan()
    FAILURE_FILES = read_failure_files(
        Path(CONFIG.decision.rates), CONFIG.decision.rate
    )
    FAILURE_LOGS = [
        str(path.parent / file.log) for path, file in FAILURE_FILES.items() if file.log
    ]
    for path in [*map(str, FAILURE_FILES), *FAILURE_LOGS]:
        check_input(path, "a file of decision.rates")
    check_input(CONFIG.decision.numbers or "", "decision.numbers")
    if CONFIG.decision.numbers:
        from ckptbench.decide.given import read_given  # imports pandas

        read_given(Path(CONFIG.decision.numbers))
except CkptbenchError as error:
    raise WorkflowError(str(error)) from None

CELLS = {cell.id: cell for cell in cells}
# The cells are in the order in which to run them: each baseline is beside the cells that are compared with it.
PRIORITY = {cell_id: len(CELLS) - place for place, cell_id in enumerate(CELLS)}

CHOICES = CONFIG.decision.model_dump_json(exclude={"rates", "numbers"})


def get_all_seals():
    return [f"{RUNS}/{cell_id}/seal.json" for cell_id in CELLS]


def get_failed():
    """The jobs that Snakemake has given up."""
    return [
        FailedJob(
            job.rule.name,
            dict(job.wildcards.items()),
            tuple(map(Path, job.log)),
            STARTED,
        )
        for job in workflow.scheduler.failed
        if not job.is_group()
    ]


def get_rates_folder(wildcards):
    return CONFIG.decision.rates


def get_failure_rates():
    """The files of the failure rates, and the logs that they name."""
    return [*map(str, FAILURE_FILES), *FAILURE_LOGS]


def get_priority(wildcards):
    return PRIORITY[wildcards.cell]


def get_threads(wildcards):
    """All cores of this machine. On a cluster it is 1: a profile's cpus_per_task sets the cores of a rank."""
    return workflow.cores if workflow.local_exec else 1


def get_sources(script, tables, modules=()):
    """The source files that a script runs. Editing one of them, and no other, makes the outputs of its rule outdated.

    Registries load some by name: those of the tables that it reads or fills, and `modules`.
    """
    named = [*modules, *(EVERY[table].module for table in tables)]
    return ancient(sources_of(Path(script), named))


def is_forced():
    """Whether the user has forced outputs to be made again: --force, --forceall or --forcerun."""
    settings = workflow.dag_settings
    return bool(settings.forcetargets or settings.forceall or settings.forcerun)

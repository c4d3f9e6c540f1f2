# Reads and checks the config, expands it into cells, and defines the functions that the rules call.
import contextlib
import functools
import inspect
import io
import json
import os
import re
import shlex
import sys
import time
from pathlib import Path

from snakemake.cli import parse_args
from snakemake.exceptions import WorkflowError
from snakemake_interface_executor_plugins.registry import ExecutorPluginRegistry

from ckptbench.common.foreign import own_packages_first

own_packages_first()  # before pandas and pydantic

from ckptbench.analysis.tables.registry import DECIDED, EVERY
from ckptbench.decide.failure_files import read_failure_files
from ckptbench.common.errors import CkptbenchError, ConfigError
from ckptbench.common.files import file_sha256
from ckptbench.common.host import count_gpus
from ckptbench.common.user import supply_user
from ckptbench.matrix.plugin_spec import NAME
from ckptbench.config.commands import PATTERN, check_input, shell_prefix
from ckptbench.common.remedies import blame, lost_link
from ckptbench.inputs.environments.create import obstacle
from ckptbench.config.environments import find_environments, imports, read_environments
from ckptbench.config.reading import ConfigFiles
from ckptbench.config.failed import FailedJob, advice
from ckptbench.config.identity import OF_DECISION, OF_RUNS, mark_path, refusal
from ckptbench.config.outlook import Machine, outlook
from ckptbench.config.planning import check_source, leave_out, plan_study
from ckptbench.config.sources import sources_of
from ckptbench.trainers.trainer import rows as find_rows

supply_user(os.environ, Path(".snakemake/caches"))

STARTED = time.time()
IS_PLAN = os.environ.get("CKPTBENCH_PLAN") == "only"  # as `make plan` says
CLONE = Path(str(workflow.current_basedir)).parents[1]
RUNS = "results/runs"
TABLES_FOLDER = "results/tables"
STUDY = "results/study.json"
ANSWER = "results/answer.txt"
PAGE = "results/index.html"
DATASETS = "results/datasets"
PRESENT = "results/environments"


wildcard_constraints:
    cell=NAME,
    environment=NAME,
    dataset=NAME,
    trainer=NAME,
    check="[a-z_]+",


@functools.cache
def of_clone(path):
    """The path of a file of ckptbench. As a module of another workflow it does not lie in the working folder."""
    near = os.path.relpath(CLONE / path)
    return str(CLONE / path) if near.startswith("-") else near  # it is no option


# What Snakemake has no public way for: how it was called, and which jobs it has given up.


def get_config_files():
    """The config files in the order of their weight: later ones override. Snakemake lists the Snakefile's file last."""
    given = workflow.overwrite_configfiles
    own = workflow.configfiles[len(given) :]
    return [
        Path(path if near.startswith("..") else near)
        for path in (*own, *given)
        for near in [os.path.relpath(path)]
    ]


def is_forced():
    """Whether the user has forced outputs to be made again: --force, --forceall or --forcerun."""
    settings = workflow.dag_settings
    return bool(settings.forcetargets or settings.forceall or settings.forcerun)


def get_threads(wildcards):
    """All cores of this machine. On a cluster it is 1: a profile's cpus_per_task sets the cores of a rank."""
    return workflow.cores if workflow.local_exec else 1


def get_planned():
    """The names of the rules that this call was to run, or found up to date."""
    return {job.rule.name for job in workflow.dag.jobs}


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


def find_machine():
    """What the profile has for the runs. Of an executor's own settings only the command line says anything in a dry run."""
    here = Machine(gpus=count_gpus() if CONFIG.accelerator == "cuda" else None)
    if workflow.resource_settings.nodes is None:
        return here
    with contextlib.redirect_stderr(io.StringIO()):  # which profile it uses
        _, options = parse_args(sys.argv[1:])
    plugin = ExecutorPluginRegistry().get_plugin(options.executor)
    if plugin.common_settings.local_exec:
        return here
    resources = {
        name: each.value
        for name, each in rules.train_cell.rule.resources.items()
        if name in ("runtime", "tasks_per_node") and not each.is_evaluable()
    }
    settings = plugin.get_settings(options)
    queue = re.escape(str(getattr(settings, "queue", "")))
    given = " ".join(getattr(settings, "options", None) or ())
    most = re.search(rf'max_nodes=[^}}]*"{queue}": *(\d+)', given)
    return Machine(
        at_once=workflow.resource_settings.nodes,
        is_cluster=True,
        ranks_per_node=resources.get("tasks_per_node")
        or getattr(settings, "tasks_per_node", None),
        limit_min=resources.get("runtime"),
        most_nodes=int(most[1]) if most else None,
    )


def check_paths():
    """Raises ConfigError where Snakemake would look for outputs elsewhere than commands write them."""
    for path in (ANSWER, f"{RUNS}/x/seal.json", ".environments/x/ready.json"):
        if (other := workflow.modifier.path_modifier.replace_prefix(path)) != path:
            raise ConfigError(
                f"as a module ckptbench writes {path}, and this workflow would look for {other}: leave out prefix and replace_prefix; "
                "to keep results apart, run in a folder of their own (--directory)"
            )


def find_obstacle(environment):
    """What making the environment takes that is not on this machine; None where nothing is missing."""
    lock, constraints = (
        Path(of_clone(f"envs/{name}.txt"))
        for name in (environment, "build-constraints")
    )
    return obstacle(lock, constraints, Path(".environments", environment))


# `python` in a rule is the interpreter that runs Snakemake, even if its environment is not active. WORKFLOW is this
# process. A process that a rule starts cannot find out its parent's id by itself if this process has ended by then.
try:
    for place in (".snakemake", ".environments", "results"):
        if lost := lost_link(place):
            raise WorkflowError(lost)
    check_source(CLONE)
    check_paths()
    shell.prefix(shell_prefix(Path(sys.executable), os.getpid()))
    CONFIG, cells = plan_study(config, get_config_files(), Path(DATASETS))
    cells, LEFT_OUT = leave_out(CONFIG, cells, find_obstacle)
    ROWS = {}  # trainers that are checked in place of the study
    NEEDS = imports(cells)
    if CONFIG.trainers:
        TRAINERS = Path(CONFIG.trainers.folder or of_clone("trainers"))
        ROWS = {row.name: row for row in find_rows(TRAINERS, CONFIG.trainers.names)}
        NEEDS = {row.trainer.environment: () for row in ROWS.values()}
    if workflow.is_main_process:
        sources = ConfigFiles(config, get_config_files())
        FOUND, AWAY = find_environments(
            CONFIG.environments, NEEDS, sources, Path(PRESENT)
        )
    else:  # a job of a cluster has what was found when the workflow began
        FOUND = read_environments(CONFIG.environments, NEEDS, Path(PRESENT))
        AWAY = {}
    # What no config names is ckptbench's own, wherever the workflow runs that has it as a module.
    is_named = "rates" in CONFIG.decision.model_fields_set
    RATES = CONFIG.decision.rates if is_named else of_clone(CONFIG.decision.rates)
    FAILURE_FILES = read_failure_files(Path(RATES), CONFIG.decision.rate)
    FAILURE_LOGS = [
        str(path.parent / file.log)
        for path, (file, _) in FAILURE_FILES.items()
        if file.log
    ]
    for path in [*map(str, FAILURE_FILES), *FAILURE_LOGS]:
        check_input(path, "a file of decision.rates")
    check_input(CONFIG.decision.numbers or "", "decision.numbers")
    if CONFIG.decision.numbers:
        from ckptbench.decide.user_costs import read_user_costs  # imports pandas

        read_user_costs(Path(CONFIG.decision.numbers))
except CkptbenchError as error:
    if IS_PLAN:
        sys.exit(str(error))
    raise WorkflowError(str(error)) from None

for error in AWAY.values():
    print(f"Its runs stay, and no other can start: {error}", file=sys.stderr)

CELLS = {cell.id: cell for cell in cells}
# The cells are in the order in which to run them: each baseline is beside the cells that are compared with it.
PRIORITY = {cell_id: len(CELLS) - place for place, cell_id in enumerate(CELLS)}

CHOICES = CONFIG.decision.model_dump_json(exclude={"rates", "numbers"})


def get_all_seals():
    return [f"{RUNS}/{cell_id}/seal.json" for cell_id in CELLS]


def get_tables(names):
    return expand(f"{TABLES_FOLDER}/{{table}}.parquet", table=names)


# Functions, as the linter would take what they give for a prefix of an input or output that is written twice.
def get_stem(wildcards, output):
    return output.pdf.removesuffix(".pdf")


def get_source(wildcards):
    return of_clone("src")


def get_mark(kind):
    return str(mark_path(Path(TABLES_FOLDER), kind, MARKS[kind]))


def get_figures(names):
    return expand(
        "results/figures/{figure}.{format}",
        figure=names,
        format=["pdf", "png", "txt"],
    )


def get_reported(names):
    """The tables as CSV, as the report has them."""
    return [as_reported(name) for name in names]


def as_reported(table):
    return report(
        f"{TABLES_FOLDER}/{table}.csv",
        caption=f"../report/table_{table}.rst",
        category=in_report("Tables", [table]),
        labels={"table": EVERY[table].title, "name": table},
    )


def in_report(category, tables):
    """The category of a result that is made from these tables. Snakemake asks for it only when it makes a report, and has no other
    way to refuse one."""
    is_of_runs = not CONFIG.decision.numbers or not {*tables} <= {*DECIDED}
    wanted = {
        kind: mark for kind, mark in MARKS.items() if is_of_runs or kind == OF_DECISION
    }

    def get_category(wildcards):
        if told := refusal(Path(TABLES_FOLDER), wanted, WORDS, Path(PAGE)):
            sys.exit(told)
        return category

    return get_category


def get_rates_folder(wildcards):
    return RATES


def get_failure_rates():
    """The files of the failure rates, and the logs that they name."""
    return [*map(str, FAILURE_FILES), *FAILURE_LOGS]


def get_numbers():
    return [CONFIG.decision.numbers] if CONFIG.decision.numbers else []


def get_sha256(wildcards):
    """Of the user's files of rates and numbers. One that is replaced by an older file is another one too."""
    return [file_sha256(Path(path)) for path in [*get_failure_rates(), *get_numbers()]]


def get_cell(wildcards):
    return json.dumps(CELLS[wildcards.cell].to_json())


def get_priority(wildcards):
    return PRIORITY[wildcards.cell]


def get_ranks(wildcards):
    """The ranks of a run. On a cluster they are the tasks of its job."""
    return CELLS[wildcards.cell].ranks


def get_sources(verb, tables, modules=()):
    """The source files that a verb runs. Editing one of them, and no other, makes the outputs of its rule outdated.

    Some are loaded by name: its own module, those of the tables that it reads or fills, and `modules`.
    """
    own = ["workflow.__main__", f"workflow.{verb.replace('-', '_')}"]
    named = [*own, *modules, *(EVERY[table].module for table in tables)]
    return sources_of(named, Path(of_clone("src")))


def keep_signatures():
    """Note the signatures of the functions above. Snakemake asks for them in each job, and finding them out takes long."""
    for function in [*globals().values()]:
        if inspect.isfunction(function) and function.__name__.startswith("get_"):
            function.__signature__ = inspect.signature(function)


def show_answer():
    """Print the answer where the workflow was asked for it, and `make` does not print it itself; and where the page is."""
    if "write_answer" in get_planned() and os.environ.get("CKPTBENCH_ANSWER") != "last":
        print(Path(ANSWER).read_text(encoding="utf-8"), file=sys.stderr)
        print(f"With figures and tables: {PAGE}", file=sys.stderr)


def show_failed():
    """Print which jobs failed and why, and how to go on."""
    wanted = get_all_answers() if ROWS else get_all_seals()
    print(advice(get_failed(), wanted, Path("results")), file=sys.stderr)

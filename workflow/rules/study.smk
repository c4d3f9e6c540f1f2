# The functions that the rules of the study call.
import dataclasses
import functools
from types import SimpleNamespace

from ckptbench.analysis.tables.registry import COLLECTED, DERIVED, TABLES
from ckptbench.report.answer import DECISION, STUDY_TABLES
from ckptbench.inputs.datasets.sources import changes as changes_of_dataset
from ckptbench.inputs.datasets.sources import made_from
from ckptbench.decide import COST_TABLES
from ckptbench.inputs.environments.create import changes as changes_of_environment
from ckptbench.inputs.environments.create import described
from ckptbench.inputs.environments.folder import READY, environment_sha256
from ckptbench.inputs.environments.interpreter import interpreter_for
from ckptbench.inputs.environments.lock_file import python_of
from ckptbench.report.figures import FIGURES
from ckptbench.inputs.environments.present import lock_name
from ckptbench.matrix.registry import DATA, FRAMEWORKS
from ckptbench.matrix.training import proven_by
from ckptbench.config.environments import present_name
from ckptbench.config.identity import digest, digest_of_runs, in_words
from ckptbench.config.record import StudyRecord

PROVEN = proven_by(CELLS.values())
CONSTRAINTS = of_clone("envs/build-constraints.txt")
# Costs come from the tables of the study, unless the user gives them in a file.
COSTS = [] if CONFIG.decision.numbers else COST_TABLES
ANSWERED = [*DECISION, *([] if CONFIG.decision.numbers else STUDY_TABLES)]
ANSWER_OPTIONS = "--given" if CONFIG.decision.numbers else ""
# Of which config results are, by the kind of mark that lies beside the tables: a mark of another config is missed, and all is made
# again. A report is refused without them.
MARKS = {
    OF_RUNS: digest_of_runs(CONFIG, CELLS.values()),
    OF_DECISION: digest(CHOICES, get_sha256({})),
}
WORDS = in_words(MARKS[OF_RUNS], CONFIG, get_config_files(), len(CELLS), LEFT_OUT)


def get_all_environments():
    names = dict.fromkeys(cell.environment for cell in CELLS.values())
    return [ready_of(name) for name in (DATA, *names)]


@functools.cache
def get_all_figures():
    """The figures for which the study has data."""
    shown = [
        name
        for name, entry in FIGURES.items()
        if "decision_costs" not in entry.tables and entry.is_of(CELLS.values())
    ]
    return list(dict.fromkeys([*get_figures(shown), *get_decision_figures()]))


def get_decision_figures():
    """Those of the decision, if there is something to decide from."""
    decided = FIGURES["advice"].is_of(CELLS.values())
    shown = ["advice"] if decided or CONFIG.decision.numbers else []
    if shown and (CONFIG.decision.gpus or CONFIG.decision.numbers):
        # A projection, which a study has only where it is asked for.
        shown.append("scale")
    return get_figures(shown)


def get_figures_of_page(wildcards):
    """Those of the study. Where only some rules may run, of the others those that are there already."""
    decided = get_decision_figures()
    if CONFIG.decision.numbers:
        return decided
    if not workflow.dag_settings.allowed_rules:
        return get_all_figures()
    return [
        each for each in get_all_figures() if each in decided or Path(each).exists()
    ]


def ready_of(environment):
    """What is there when an environment can be used."""
    name = present_name(environment)
    if name in FOUND:
        return f"{PRESENT}/{name}/{READY}"
    return f".environments/{environment}/{READY}"


def lock_of(environment):
    name = present_name(environment)
    if name in FOUND:
        return f"{PRESENT}/{name}/{lock_name(name)}"
    return of_clone(f"envs/{environment}.txt")


def get_lock(wildcards):
    return lock_of(
        getattr(wildcards, "environment", None) or CELLS[wildcards.cell].environment
    )


@functools.cache
def packages_of(environment):
    """What the environment is made from, or has, as its `ready.json` says it."""
    name = present_name(environment)
    if name in FOUND:
        return FOUND[name].described()
    try:
        return described(Path(lock_of(environment)), Path(CONSTRAINTS))
    except FileNotFoundError:
        return {}


def get_present(wildcards):
    """An environment that is there, as its rule writes it down."""
    return json.dumps(dataclasses.asdict(FOUND[wildcards.environment]))


def get_packages(wildcards):
    return json.dumps(packages_of(wildcards.environment))


def get_environment_sha256(wildcards):
    return sha256_of(CELLS[wildcards.cell].environment)


@functools.cache
def sha256_of(environment):
    return environment_sha256(packages_of(environment))


def check_environments():
    """Raises WorkflowError where an environment is to be used that is not there any more, or made with a Python that is not on this machine."""
    for job in workflow.dag.needrun_jobs():
        if job.rule.name == "train_cell":
            name = present_name(CELLS[job.wildcards.cell].environment)
            if name in AWAY:
                raise WorkflowError(str(AWAY[name]))
        if job.rule.name == "create_environment":
            lock = Path(get_lock(job.wildcards))
            try:
                interpreter_for(lock, python_of(lock))
            except CkptbenchError as error:
                raise WorkflowError(str(error)) from None


def get_recipe(wildcards):
    """The recipe by which a package of the environment is compiled, from the registry. Most environments have none."""
    entry = FRAMEWORKS.get(wildcards.environment.removesuffix("-cuda"))
    return [ancient(of_clone(entry.recipe))] if entry and entry.recipe else []


def get_dataset_name(wildcards):
    return getattr(wildcards, "dataset", None) or CELLS[wildcards.cell].dataset


def get_dataset_settings(wildcards):
    return settings_of(get_dataset_name(wildcards))


@functools.cache
def settings_of(name):
    return json.dumps(getattr(CONFIG.datasets, name).settings())


def get_samples(wildcards):
    """What a dataset is made from: settings, the files that they name, and the code that prepares it."""
    return samples_of(get_dataset_name(wildcards))


@functools.cache
def samples_of(name):
    return json.dumps(made_from(getattr(CONFIG.datasets, name)))


def get_environment(wildcards):
    """The times of files do not count, but of an environment that is to be made again: then its runs follow."""
    name = CELLS[wildcards.cell].environment
    path = ready_of(name)
    return path if is_other_environment(name, path) else ancient(path)


@functools.cache
def is_other_environment(name, path):
    return bool(changes_of_environment(Path(path).parent, packages_of(name)))


def get_dataset(wildcards):
    """As of an environment, the time of a dataset does not count."""
    name = CELLS[wildcards.cell].dataset
    path = f"{DATASETS}/{name}/dataset.json"
    return path if is_other_dataset(name, path) else ancient(path)


@functools.cache
def is_other_dataset(name, path):
    return bool(changes_of_dataset(Path(path).parent, getattr(CONFIG.datasets, name)))


def get_checkpoints(wildcards):
    return str(CONFIG.checkpoints.folder or RUNS)


def get_training(wildcards):
    own = CONFIG.training_of_cells().of(CELLS[wildcards.cell], PROVEN)
    return json.dumps(dataclasses.asdict(own))


def get_levels(wildcards):
    """The folders of the levels that belong to a node, where the config names them."""
    named = {
        "--memory-folder": CONFIG.checkpoints.memory_folder,
        "--node-folder": CONFIG.checkpoints.node_folder,
    }
    return [part for name, folder in named.items() if folder for part in (name, folder)]


def get_failures(wildcards):
    """The list of failures that the cell names."""
    listed = [each.to_json() for each in CONFIG.failures_of(CELLS[wildcards.cell])]
    return ["--failures", json.dumps(listed)] if listed else []


def get_gpus(wildcards):
    cell = CELLS[wildcards.cell]
    return cell.ranks if cell.accelerator == "cuda" else 0


def alike(function):
    """What the function gives for all runs alike, and itself where they differ: Snakemake would call it for each of them."""
    first, *others = (function(SimpleNamespace(cell=cell_id)) for cell_id in CELLS)
    is_alike = all(other == first for other in others)
    return first if is_alike and not PATTERN.search(str(first)) else function


def show_plan():
    """Print what the study takes, ahead of Snakemake's list of jobs. `make plan` asks for no more."""
    name = WORDS.partition(": ")[0]
    lines = outlook(name, CONFIG, [*CELLS.values()], find_machine(), Path("results"))
    if LEFT_OUT:
        lines.append(LEFT_OUT)
    print(*lines, sep="\n", file=sys.stdout if IS_PLAN else sys.stderr, flush=True)
    if IS_PLAN:
        sys.exit()


def write_study():
    """Write the record that runs read when they start. A change of it makes no run again.

    Nothing starts where an environment cannot be made.
    """
    check_environments()
    record = StudyRecord(
        cells=tuple(CELLS.values()),
        training=CONFIG.training_of_cells(),
        words=WORDS,
        listed={
            cell.id: [failure.to_json() for failure in CONFIG.failures_of(cell)]
            for cell in CELLS.values()
            if cell.failure_list
        },
        resume=CONFIG.resume,
        keep_after_run=CONFIG.checkpoints.keep_after_run,
        run_minutes=CONFIG.limits.run_minutes,
        repeat=is_forced(),
    )
    try:
        record.write(Path(STUDY))
    except OSError as error:
        raise WorkflowError(
            f"{STUDY} cannot be written: {blame(error, STUDY)}"
        ) from None

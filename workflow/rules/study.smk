# The study of the matrix: the functions that its rules call.
import dataclasses
import functools

from ckptbench.analysis.tables.registry import COLLECTED, DECIDED, DERIVED, TABLES
from ckptbench.answer import DECISION, STUDY_TABLES
from ckptbench.decide import COST_TABLES
from ckptbench.figures import FIGURES
from ckptbench.matrix.catalogue import FRAMEWORKS
from ckptbench.study.failed import advice
from ckptbench.study.record import StudyRecord

TRAINING = json.dumps(dataclasses.asdict(CONFIG.training_of_cells()))
CONSTRAINTS = "envs/build-constraints.txt"
STUDY = "results/study.json"
ANSWER = "results/answer.txt"
WHAT_IF_PAGE = "results/decision.html"
AUDIT = "results/audit.txt"
AUDIT_PAGE = "results/audit_page.txt"


wildcard_constraints:
    cell=NAME,
    environment=NAME,
    dataset=NAME,


def get_everything():
    return [
        *get_all_seals(),  # a run that was removed is made again, though there are tables of it
        *get_all_figures(),
        *get_all_tables(),
        ANSWER,
        WHAT_IF_PAGE,
        AUDIT_PAGE,
    ]


def get_all_environments():
    names = dict.fromkeys(cell.environment for cell in CELLS.values())
    return [f".environments/{name}/ready.json" for name in ("data", *names)]


def get_all_tables():
    return expand("results/tables/{table}.parquet", table=[*TABLES, *DECIDED])


@functools.cache
def get_all_figures():
    """The figures for which the study has data."""
    shown = [
        name
        for name, entry in FIGURES.items()
        if "decision_costs" not in entry.tables and entry.is_of(CELLS.values())
    ]
    return list(dict.fromkeys([*_files_of(shown), *get_decision_figures()]))


def get_decision_figures():
    """Those of the decision, if there is something to decide from."""
    decided = FIGURES["advice"].is_of(CELLS.values())
    shown = ["advice"] if decided or CONFIG.decision.numbers else []
    if shown and (CONFIG.decision.gpus or CONFIG.decision.numbers):
        # A projection, which a study has only where it is asked for.
        shown.append("scale")
    if FIGURES["validation"].is_of(CELLS.values()):
        shown.append("validation")
    return _files_of(shown)


def _files_of(figures):
    return expand(
        "results/figures/{figure}.{format}",
        figure=figures,
        format=["pdf", "png", "txt"],
    )


def get_cost_tables(wildcards):
    """The tables that costs come from: of a study, unless the user gives them in a file."""
    return (
        []
        if CONFIG.decision.numbers
        else expand("results/tables/{table}.parquet", table=COST_TABLES)
    )


def get_answer_tables(wildcards):
    """The tables that the answer is made from: those of the decision, and of a study those of what it measured."""
    return expand(
        "results/tables/{table}.parquet",
        table=[*DECISION, *([] if CONFIG.decision.numbers else STUDY_TABLES)],
    )


def get_numbers():
    return [CONFIG.decision.numbers] if CONFIG.decision.numbers else []


def get_audit():
    """The text of the last audit of this machine, or that none was made."""
    return [AUDIT if Path(AUDIT).exists() else "workflow/report/no_audit.txt"]


def get_recipe(wildcards):
    """The recipe by which a package of the environment is compiled, from the registry. Most environments have none."""
    framework = wildcards.environment.removesuffix("-cuda")
    entry = FRAMEWORKS.get(framework)
    recipe = entry.recipe if entry is not None else None
    return [] if recipe is None else [ancient(recipe)]


def get_dataset_settings(wildcards):
    return json.dumps(getattr(CONFIG.datasets, wildcards.dataset).settings())


def get_environment(wildcards):
    return f".environments/{CELLS[wildcards.cell].environment}/ready.json"


def get_lock(wildcards):
    return f"envs/{CELLS[wildcards.cell].environment}.txt"


def get_dataset(wildcards):
    return f"{DATASETS}/{CELLS[wildcards.cell].dataset}/dataset.json"


def get_cell(wildcards):
    return json.dumps(CELLS[wildcards.cell].to_json())


def get_checkpoints(wildcards):
    return str(CONFIG.checkpoints.folder or "results/runs")


def get_levels(wildcards):
    """The folders of the levels that belong to a node, where the config names them."""
    named = {
        "--memory-folder": CONFIG.checkpoints.memory_folder,
        "--node-folder": CONFIG.checkpoints.node_folder,
    }
    return [part for name, folder in named.items() if folder for part in (name, folder)]


def get_failures(wildcards):
    """The list of failures that the cell names."""
    name = dict(CELLS[wildcards.cell].faults.options).get("name")
    if name is None:
        return []
    return ["--failures", json.dumps(list_of_failures(name))]


def list_of_failures(name):
    return [each.model_dump(exclude_none=True) for each in CONFIG.failures[name]]


def get_ranks(wildcards):
    """The ranks of a run. On a cluster they are the tasks of its job."""
    return CELLS[wildcards.cell].ranks


def get_gpus(wildcards):
    cell = CELLS[wildcards.cell]
    return cell.ranks if cell.accelerator == "cuda" else 0


def write_study():
    """Write the record that runs read when they start. A change of it makes no rule run again."""
    record = StudyRecord(
        cells=tuple(CELLS.values()),
        training=CONFIG.training_of_cells(),
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


def show_failed():
    """Print which jobs failed and why, and how to have the tables of the other runs."""
    words = advice(
        get_failed(), CONFIG, list(CELLS.values()), Path("results"), get_config_files()
    )
    print(words, file=sys.stderr)


def show_answer():
    """Print the answer, or whether to believe it, where the workflow was asked for it and `make` prints it not itself."""
    if os.environ.get("CKPTBENCH_ANSWER") == "last":
        return
    names = {job.rule.name for job in workflow.dag.jobs}
    pages = {
        "audit": AUDIT,
        "write_answer": ANSWER,
    }
    for page in [path for name, path in pages.items() if name in names][:1]:
        print(Path(page).read_text(encoding="utf-8"), file=sys.stderr)

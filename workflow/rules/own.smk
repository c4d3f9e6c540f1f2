# The study of an own training: a command with placeholders, each run of it under the probe. Environment and data are the user's.
from ckptbench.report.figures import OWN_FIGURES as FIGURES
from ckptbench.own.made import ANSWERED, TABLES
from ckptbench.own.record import OwnStudy

ANSWER_OPTIONS = "--own"
IN_REPORT = [
    name for name in TABLES if (CLONE / f"workflow/report/table_{name}.rst").exists()
]

if CONFIG.decision.numbers:
    raise WorkflowError(
        "decision.numbers: the study measures what your own training costs; leave it out here, and ask by "
        "`make decide NUMBERS=FILE` what other numbers give"
    )


def get_everything():
    return [
        *get_all_seals(),  # a run that was removed is made again, though there are tables of it
        *get_all_figures(),
        *get_tables(TABLES),
        ANSWER,
    ]


def get_all_figures():
    """A projection to more GPUs is there only where it is asked for."""
    shown = [name for name in FIGURES if name != "scale" or CONFIG.decision.gpus]
    return get_figures(shown)


def get_command(wildcards):
    return CELLS[wildcards.cell].command


def get_gpus(wildcards):
    return CELLS[wildcards.cell].gpus


# A run is timed, so it has the machine, or on a cluster its nodes, to itself. As in rule train_cell no time of a file counts, and what
# is started ends when the workflow is gone.
rule train_own:
    """Make one run of an own training under the probe."""
    input:
        script=ancient(of_clone("scripts/train_own.py")),
    output:
        seal="results/own/runs/{cell}/seal.json",
    log:
        "results/own/logs/train_own/{cell}.log",
    priority: get_priority
    threads: get_threads
    resources:
        machine=1,
        tasks=get_ranks,
        gpus=get_gpus,
    params:
        cell=get_cell,
        command=get_command,
        runs=RUNS,
        study=STUDY,
    message:
        "train {wildcards.cell}: {params.command}"
    shell:
        "exec python {input.script} --cell {params.cell:q} --runs {params.runs} --study {params.study}"
        " --parent $WORKFLOW --log {log}"


rule own_tables:
    """Make tables of what the probe saw in all runs, and of how often to save."""
    input:
        get_all_seals(),
        ancient(get_failure_rates()),
        get_sources("scripts/own_tables.py", TABLES),
        script=of_clone("scripts/own_tables.py"),
    output:
        get_tables(TABLES),
        expand(
            f"{TABLES_FOLDER}/{{table}}.csv",
            table=[name for name in TABLES if name not in IN_REPORT],
        ),
        csv=get_reported(IN_REPORT),
    log:
        "results/own/logs/own_tables.log",
    benchmark:
        "results/own/benchmarks/own_tables.tsv"
    localrule: True
    params:
        study=STUDY,
        runs=RUNS,
        tables=TABLES_FOLDER,
        rates=get_rates_folder,
        choices=CHOICES,
        content=get_sha256,
    message:
        f"tables of {len(CELLS)} runs"
    shell:
        "python {input.script} --study {params.study} --runs {params.runs} --rates={params.rates:q}"
        " --choices {params.choices:q} --tables {params.tables} --log {log}"


def write_study():
    write_record(
        OwnStudy(
            cells=tuple(CELLS.values()),
            keep=CONFIG.own.keep,
            run_minutes=CONFIG.limits.run_minutes,
            repeat=is_forced(),
        )
    )

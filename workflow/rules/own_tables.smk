# What comes of the runs of an own training: the same tables, figures and answer as of the other study.
from ckptbench.figures import OWN_FIGURES
from ckptbench.own.made import ANSWERED, TABLES

OWN_TABLES = "results/own/tables"
ANSWER = "results/own/answer.txt"
IN_REPORT = [
    name for name in TABLES if Path(f"workflow/report/table_{name}.rst").exists()
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
        *tables_of(TABLES),
        ANSWER,
    ]


def tables_of(names):
    return expand(f"{OWN_TABLES}/{{table}}.parquet", table=names)


def get_all_figures():
    """A projection to more GPUs is there only where it is asked for."""
    shown = [name for name in OWN_FIGURES if name != "scale" or CONFIG.decision.gpus]
    return expand(
        "results/own/figures/{figure}.{format}",
        figure=shown,
        format=["pdf", "png", "txt"],
    )


rule own_tables:
    """Make tables of what the probe saw in all runs, and of how often to save."""
    input:
        by_content("own_tables", get_all_seals()),
        ancient(get_failure_rates()),
        script=ancient("scripts/own_tables.py"),
        library=get_sources("scripts/own_tables.py", TABLES),
        mark=get_mark("own_tables"),
    output:
        tables_of(TABLES),
        expand(
            f"{OWN_TABLES}/{{table}}.csv",
            table=[name for name in TABLES if name not in IN_REPORT],
        ),
        csv=[
            report(
                f"{OWN_TABLES}/{table}.csv",
                caption=f"../report/table_{table}.rst",
                category="Tables",
                labels={"table": table},
            )
            for table in IN_REPORT
        ],
    log:
        "results/own/logs/own_tables.log",
    localrule: True
    params:
        study=STUDY,
        runs=RUNS,
        tables=OWN_TABLES,
        rates=get_rates_folder,
        choices=CHOICES,
    message:
        f"tables of {len(CELLS)} runs"
    shell:
        "python {input.script} --study {params.study} --runs {params.runs} --rates {params.rates:q}"
        " --choices {params.choices:q} --tables {params.tables} --log {log}"


for figure, entry in OWN_FIGURES.items():

    rule:
        name:
            f"draw_{figure}"
        input:
            by_content(f"draw_{figure}", tables_of(entry.tables)),
            script=ancient("scripts/draw_figure.py"),
            library=get_sources(
                "scripts/draw_figure.py", entry.tables, [f"figures.{entry.module}"]
            ),
            mark=get_mark(f"draw_{figure}"),
        output:
            pdf=f"results/own/figures/{figure}.pdf",
            png=report(
                f"results/own/figures/{figure}.png",
                caption="../report/figure.rst",
                category="Figures",
                labels={"figure": entry.title},
            ),
            caption=f"results/own/figures/{figure}.txt",
        log:
            f"results/own/logs/draw_figure/{figure}.log",
        localrule: True
        params:
            figure=figure,
            tables=OWN_TABLES,
        message:
            f"figure {figure}"
        shell:
            "python {input.script} {params.figure} --own --tables {params.tables}"
            " --output-stem results/own/figures/{params.figure} --log {log}"

    workflow.get_rule(f"draw_{figure}").docstring = f"Draw: {entry.title}."


rule write_answer:
    """Write the answer on one screen. The workflow prints it at its end, and the report begins with it."""
    input:
        by_content("write_answer", tables_of(ANSWERED)),
        script=ancient("scripts/write_answer.py"),
        library=get_sources("scripts/write_answer.py", ANSWERED),
        mark=get_mark("write_answer"),
    output:
        ANSWER,
    log:
        "results/own/logs/write_answer.log",
    localrule: True
    params:
        tables=OWN_TABLES,
    message:
        "the answer: how often to save"
    shell:
        "python {input.script} --own --tables {params.tables} --output {output} --log {log}"


def show_answer():
    """Print the answer, where the workflow was asked for it and `make` prints it not itself."""
    names = {job.rule.name for job in workflow.dag.jobs}
    if os.environ.get("CKPTBENCH_ANSWER") != "last" and "write_answer" in names:
        print(Path(ANSWER).read_text(encoding="utf-8"), file=sys.stderr)

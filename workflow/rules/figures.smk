# Tables -> figures and the answer, of both studies. Each figure has its own rule and reads tables only.
for figure, entry in FIGURES.items():

    rule:
        """Draw the figure from its tables."""
        name:
            f"draw_{figure}"
        input:
            get_tables(entry.tables),
            get_sources(
                "scripts/draw_figure.py",
                entry.tables,
                [f"report.figures.{entry.module}"],
            ),
            script=of_clone("scripts/draw_figure.py"),
        output:
            pdf=f"{RESULTS}/figures/{figure}.pdf",
            png=report(
                f"{RESULTS}/figures/{figure}.png",
                caption="../report/figure.rst",
                category=in_report("Figures", entry.tables),
                labels={"figure": entry.title},
            ),
            caption=f"{RESULTS}/figures/{figure}.txt",
        log:
            f"{LOGS}/draw_figure/{figure}.log",
        localrule: True
        params:
            figure=figure,
            own="--own" if IS_OWN else "",
            tables=get_tables_folder,
            stem=get_stem,
        message:
            f"figure {figure}"
        shell:
            "python {input.script} {params.figure} {params.own} --tables {params.tables}"
            " --output-stem {params.stem} --log {log}"


rule write_answer:
    """Write the answer on one screen. The workflow prints it at its end, and the report begins with it."""
    input:
        get_tables(ANSWERED),
        get_sources("scripts/write_answer.py", ANSWERED),
        get_mark(OF_DECISION),
        script=of_clone("scripts/write_answer.py"),
    output:
        ANSWER,  # the first page of the report has it
    log:
        f"{LOGS}/write_answer.log",
    localrule: True
    params:
        options=ANSWER_OPTIONS,
        tables=get_tables_folder,
    message:
        "the answer: how often to checkpoint"
    shell:
        "python {input.script} {params.options} --tables {params.tables} --output {output} --log {log}"

# Tables -> figures and the answer. Each figure has its own rule and reads tables only.
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
            pdf=f"results/figures/{figure}.pdf",
            png=report(
                f"results/figures/{figure}.png",
                caption="../report/figure.rst",
                category=in_report("Figures", entry.tables),
                labels={"figure": entry.title},
            ),
            caption=f"results/figures/{figure}.txt",
        log:
            f"results/logs/draw_figure/{figure}.log",
        localrule: True
        params:
            figure=figure,
            stem=get_stem,
        message:
            f"figure {figure}"
        shell:
            "python {input.script} {params.figure} --tables results/tables"
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
        "results/logs/write_answer.log",
    localrule: True
    params:
        options=ANSWER_OPTIONS,
    message:
        "the answer: how often to checkpoint"
    shell:
        "python {input.script} {params.options} --tables results/tables --output {output} --log {log}"

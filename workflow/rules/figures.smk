# Tables -> figures and the answer. Each figure has its own rule and reads tables only.
for figure, entry in FIGURES.items():

    rule:
        """Draw the figure from its tables."""
        name:
            f"draw_{figure}"
        input:
            get_tables(entry.tables),
            get_sources(
                "draw-figure",
                entry.tables,
                [f"report.figures.{entry.module}"],
            ),
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
            "python -P -m ckptbench.workflow draw-figure {params.figure} --tables results/tables"
            " --output-stem {params.stem} --log {log}"


rule write_answer:
    """Write the answer on one screen. The workflow prints it at its end."""
    input:
        get_tables(ANSWERED),
        get_sources("write-answer", ANSWERED),
        get_mark(OF_DECISION),
    output:
        ANSWER,
    log:
        "results/logs/write_answer.log",
    localrule: True
    params:
        options=ANSWER_OPTIONS,
    message:
        "the answer: how often to checkpoint"
    shell:
        "python -P -m ckptbench.workflow write-answer {params.options} --tables results/tables --output {output} --log {log}"


rule write_page:
    """Write the page of the study, with all that was drawn, and the calculator beside it. The report begins with its figures and answer."""
    input:
        get_tables(ANSWERED),
        get_sources("write-page", [*TABLES, *DECIDED]),
        get_mark(OF_DECISION),
        figures=get_figures_of_page,
    output:
        page=PAGE,
        calculator="results/calculator.html",
    log:
        "results/logs/write_page.log",
    localrule: True
    params:
        options=ANSWER_OPTIONS,
        choices=CHOICES,
        rates=get_rates_folder,
    message:
        "the page of the study"
    shell:
        "python -P -m ckptbench.workflow write-page {params.options} {input.figures} --tables results/tables"
        " --rates={params.rates:q} --choices {params.choices:q} --output {output.page} --log {log}"

# Tables -> figures. Each figure has its own rule and reads tables only.
for figure, entry in FIGURES.items():

    rule:
        name:
            f"draw_{figure}"
        input:
            by_content(
                f"draw_{figure}",
                expand("results/tables/{table}.parquet", table=entry.tables),
            ),
            script=ancient("scripts/draw_figure.py"),
            library=get_sources(
                "scripts/draw_figure.py", entry.tables, [f"figures.{entry.module}"]
            ),
            mark=get_mark(f"draw_{figure}"),
        output:
            pdf=f"results/figures/{figure}.pdf",
            png=report(
                f"results/figures/{figure}.png",
                caption="../report/figure.rst",
                category="Figures",
                labels={"figure": entry.title},
            ),
            caption=f"results/figures/{figure}.txt",
        log:
            f"results/logs/draw_figure/{figure}.log",
        localrule: True
        params:
            figure=figure,
        message:
            f"figure {figure}"
        shell:
            "python {input.script} {params.figure} --tables results/tables"
            " --output-stem results/figures/{params.figure} --log {log}"

    workflow.get_rule(f"draw_{figure}").docstring = f"Draw: {entry.title}."

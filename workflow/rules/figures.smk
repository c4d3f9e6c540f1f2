# Tables -> figures. A figure reads nothing but tables.
rule draw_figure:
    input:
        tables=get_figure_tables,
        script="scripts/draw_figure.py",
        library=get_sources("figures", "py", "mplstyle"),
    output:
        pdf="results/figures/{figure}.pdf",
        png=report(
            "results/figures/{figure}.png",
            caption="../report/{figure}.rst",
            category="Figures",
            labels=get_figure_labels,
        ),
    log:
        "results/logs/draw_figure/{figure}.log",
    message:
        "figure {wildcards.figure}"
    shell:
        "python {input.script} {wildcards.figure} --tables results/tables"
        " --output-stem results/figures/{wildcards.figure} --log {log}"

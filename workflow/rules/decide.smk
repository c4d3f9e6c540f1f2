# Tables and failure rates -> how often to checkpoint, with what, and how to recover.
rule decide:
    input:
        get_cost_tables,
        get_failure_rates(),
        get_numbers(),
        script="scripts/decide.py",
        library=get_sources("decide", "py"),
    output:
        expand("results/tables/{table}.parquet", table=DECIDED),
        csv=[
            report(
                f"results/tables/{table}.csv",
                caption=f"../report/table_{table}.rst",
                category="Tables",
                labels={"table": table},
            )
            for table in DECIDED
        ],
    log:
        "results/logs/decide.log",
    localrule: True
    params:
        choices=CHOICES,
        rates=get_rates_folder,
        numbers=[f"--numbers {shlex.quote(path)}" for path in get_numbers()],
    message:
        "how often to checkpoint"
    shell:
        "python {input.script} --tables results/tables --rates {params.rates:q} {params.numbers}"
        " --choices {params.choices:q} --log {log}"


rule write_decision:
    input:
        expand("results/tables/{table}.parquet", table=DECISION),
        script="scripts/write_findings.py",
        library=get_sources("figures", "py"),
    output:
        DECISION_PAGE,
    log:
        "results/logs/write_decision.log",
    localrule: True
    message:
        "how often to checkpoint, in sentences"
    shell:
        "python {input.script} --decision --tables results/tables --output {output} --log {log}"


# One HTML file that computes in the browser.
rule write_decision_page:
    input:
        "results/tables/decision_costs.parquet",
        get_failure_rates(),
        script="scripts/write_decision_page.py",
        library=get_sources("page", "py", "js", "css", "html", "json", "txt"),
    output:
        report(
            WHAT_IF_PAGE,
            caption="../report/decision.rst",
            category="How often to checkpoint",
            labels={"page": "What if: ask for other numbers"},
        ),
    log:
        "results/logs/write_decision_page.log",
    localrule: True
    params:
        choices=CHOICES,
        rates=get_rates_folder,
    message:
        "the page to ask what if"
    shell:
        "python {input.script} --tables results/tables --rates {params.rates:q}"
        " --choices {params.choices:q} --output {output} --log {log}"


rule decision:
    input:
        DECISION_PAGE,
        WHAT_IF_PAGE,
        get_decision_figures(),

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
        choices=CONFIG.decision.model_dump_json(
            include={"rate", "gpus", "survivable", "replacement_minutes"}
        ),
        rates=CONFIG.decision.rates,
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


rule decision:
    input:
        DECISION_PAGE,
        get_decision_figures(),

rule decide:
    """Compute how often to checkpoint, with what, and how to recover: from tables and failure rates."""
    input:
        by_content("decide", get_cost_tables),
        ancient(get_failure_rates()),
        ancient(get_numbers()),
        script=ancient("scripts/decide.py"),
        library=get_sources("scripts/decide.py", [*COST_TABLES, *DECIDED]),
        mark=get_mark("decide"),
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


rule write_answer:
    """Write the answer on one screen. The workflow prints it at its end, and the report begins with it."""
    input:
        by_content("write_answer", get_answer_tables),
        script=ancient("scripts/write_answer.py"),
        library=get_sources("scripts/write_answer.py", [*DECISION, *STUDY_TABLES]),
        mark=get_mark("write_answer"),
    output:
        ANSWER,  # the first page of the report has it
    log:
        "results/logs/write_answer.log",
    localrule: True
    params:
        given="--given" if CONFIG.decision.numbers else "",
    message:
        "the answer: how often to checkpoint"
    shell:
        "python {input.script} {params.given} --tables results/tables --output {output} --log {log}"


rule write_decision_page:
    """Write the page to ask what if: one HTML file that computes in the browser."""
    input:
        by_content(
            "write_decision_page",
            ["results/tables/decision_costs.parquet", ANSWER],
        ),
        ancient(get_failure_rates()),
        script=ancient("scripts/write_decision_page.py"),
        library=get_sources("scripts/write_decision_page.py", ["decision_costs"]),
        mark=get_mark("write_decision_page"),
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
        answer=ANSWER,
    message:
        "the page to ask what if"
    shell:
        "python {input.script} --tables results/tables --rates {params.rates:q}"
        " --choices {params.choices:q} --answer {params.answer} --output {output} --log {log}"


rule decision:
    """How often to checkpoint: text, page and figures, from the tables that are there."""
    input:
        ANSWER,
        WHAT_IF_PAGE,
        get_decision_figures(),

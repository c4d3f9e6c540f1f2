# Runs -> tables -> the decision. What is made here takes a minute, and Snakemake's own rules say when it is made again.
rule collect_runs:
    """Collect what the run folders say in tidy tables."""
    input:
        get_all_seals(),
        get_sources("collect-runs", COLLECTED),
    output:
        expand(
            "results/tables/{table}.{format}",
            table=COLLECTED,
            format=["parquet", "csv"],
        ),
        mark=get_mark(OF_RUNS),
    log:
        "results/logs/collect_runs.log",
    benchmark:
        "results/benchmarks/collect_runs.tsv"
    localrule: True
    params:
        study=STUDY,
    message:
        f"tables of {len(CELLS)} runs"
    shell:
        "python -P -m ckptbench.workflow collect-runs --study {params.study} --runs results/runs --datasets results/datasets"
        " --tables results/tables --mark {output.mark} --log {log}"


rule derive_tables:
    """Derive costs, sizes and proofs from the collected tables."""
    input:
        get_tables(COLLECTED),
        get_mark(OF_RUNS),
        get_sources("analyse", TABLES),
    output:
        get_tables(DERIVED),
        csv=get_reported(DERIVED),
    log:
        "results/logs/derive_tables.log",
    benchmark:
        "results/benchmarks/derive_tables.tsv"
    localrule: True
    message:
        f"{', '.join(DERIVED)} from the collected tables"
    shell:
        "python -P -m ckptbench.workflow analyse --tables results/tables --log {log}"


rule decide:
    """Compute how often to checkpoint, with what, and how to recover: from tables and failure rates."""
    input:
        get_tables(COSTS),
        ancient([*get_failure_rates(), *get_numbers()]),
        get_sources("decide", [*COST_TABLES, *DECIDED]),
    output:
        get_tables(DECIDED),
        csv=get_reported(DECIDED),
        mark=get_mark(OF_DECISION),
    log:
        "results/logs/decide.log",
    benchmark:
        "results/benchmarks/decide.tsv"
    localrule: True
    params:
        choices=CHOICES,
        rates=get_rates_folder,
        numbers=[f"--numbers={shlex.quote(path)}" for path in get_numbers()],
        content=get_sha256,
    message:
        "how often to checkpoint"
    shell:
        "python -P -m ckptbench.workflow decide --tables results/tables --rates={params.rates:q} {params.numbers}"
        " --choices {params.choices:q} --mark {output.mark} --log {log}"


rule decision:
    """How often to checkpoint: text and figures, from the tables that are there."""
    input:
        ANSWER,
        PAGE,
        get_decision_figures(),

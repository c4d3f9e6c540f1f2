rule collect_runs:
    """Collect what the run folders say in tidy tables."""
    input:
        by_content("collect_runs", get_all_seals()),
        script=ancient("scripts/collect_runs.py"),
        library=get_sources("scripts/collect_runs.py", COLLECTED),
        mark=get_mark("collect_runs"),
    output:
        expand(
            "results/tables/{table}.{format}",
            table=COLLECTED,
            format=["parquet", "csv"],
        ),
    log:
        "results/logs/collect_runs.log",
    localrule: True
    params:
        study=STUDY,
    message:
        f"tables of {len(CELLS)} runs"
    shell:
        "python {input.script} --study {params.study} --runs results/runs --datasets results/datasets"
        " --tables results/tables --log {log}"


rule derive_tables:
    """Derive costs, sizes and proofs from the collected tables."""
    input:
        by_content(
            "derive_tables", expand("results/tables/{table}.parquet", table=COLLECTED)
        ),
        script=ancient("scripts/analyse.py"),
        library=get_sources("scripts/analyse.py", TABLES),
        mark=get_mark("derive_tables"),
    output:
        expand("results/tables/{table}.parquet", table=DERIVED),
        csv=[
            report(
                f"results/tables/{table}.csv",
                caption=f"../report/table_{table}.rst",
                category="Tables",
                labels={"table": table},
            )
            for table in DERIVED
        ],
    log:
        "results/logs/derive_tables.log",
    localrule: True
    message:
        f"{', '.join(DERIVED)} from the collected tables"
    shell:
        "python {input.script} --tables results/tables --log {log}"

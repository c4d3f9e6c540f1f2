# Run folders -> tidy tables.
rule collect_runs:
    input:
        get_all_seals(),
        script="scripts/collect_runs.py",
        library=get_sources("analysis", "py"),
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
    input:
        expand("results/tables/{table}.parquet", table=COLLECTED),
        script="scripts/analyse.py",
        library=get_sources("analysis", "py"),
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

# Only when asked for: no other rule reads what it makes as an input, so that none ever starts it.
rule audit:
    """Check whether this machine's study is to be believed."""
    input:
        script=ancient(of_clone("src/ckptbench/workflow/audit.py")),
    output:
        expand("results/tables/audit.{format}", format=["parquet", "csv"]),
    log:
        "results/logs/audit.log",
    localrule: True
    threads: get_threads
    resources:
        machine=1,
    params:
        checkpoints=get_checkpoints,
    message:
        "audit of this machine: less than three minutes, do not use it meanwhile"
    shell:
        "python -P -m ckptbench.workflow audit --tables results/tables --checkpoints={params.checkpoints:q}"
        " ${{REPEATS:+--repeats $REPEATS}} --log {log}"

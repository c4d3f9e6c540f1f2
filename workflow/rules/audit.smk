# Only when asked for: no other rule reads what it makes as an input, so that none ever starts it.
rule audit:
    """Check whether this machine's study is to be believed."""
    input:
        script=ancient(of_clone("scripts/audit.py")),
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
        text=AUDIT,
    message:
        "audit of this machine: less than three minutes, do not use it meanwhile"
    shell:
        "python {input.script} --tables results/tables --checkpoints={params.checkpoints:q}"
        " --output {params.text} ${{REPEATS:+--repeats $REPEATS}} --log {log}"


rule write_audit_page:
    """Copy the text of the last audit, or of how to make one: the first page of the report has it."""
    input:
        made=get_audit(),
    output:
        AUDIT_PAGE,
    log:
        "results/logs/write_audit_page.log",
    localrule: True
    message:
        "the page of the audit"
    shell:
        "cat {input.made} > {output} 2> {log}"

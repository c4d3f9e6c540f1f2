# Only when asked for: it writes what no rule makes, so that no other rule ever starts it.
rule audit:
    """Check whether this machine's study is to be believed."""
    input:
        script="scripts/audit.py",
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
        "python {input.script} --tables results/tables --checkpoints {params.checkpoints:q}"
        " --output {params.text} ${{REPEATS:+--repeats $REPEATS}} --log {log}"


rule write_audit_page:
    """Write the report's page on the last audit, or on how to make one."""
    input:
        made=ancient(get_audit()),
        script=ancient("scripts/audit.py"),
        library=get_sources("scripts/audit.py", EVERY),
        mark=get_mark("write_audit_page"),
    output:
        AUDIT_PAGE,  # the first page of the report has it
    log:
        "results/logs/write_audit_page.log",
    localrule: True
    params:
        made=[f"--made {path}" for path in get_audit()],
    message:
        "the page of the audit"
    shell:
        "python {input.script} --page {params.made} --output {output} --log {log}"

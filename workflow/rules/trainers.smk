# trainers/NAME -> one job for each trainer and check -> a table, a page and a figure.


rule check_trainer:
    """Check one trainer for one thing. Whatever goes wrong in it is an answer, so that others go on."""
    input:
        environment=ancient(get_environment_of_trainer),
        files=get_files_of_trainer,
        script=ancient(of_clone("src/ckptbench/workflow/check_trainer.py")),
    output:
        "results/trainers/{trainer}/{check}.json",
    log:
        "results/logs/check_trainer/{trainer}-{check}.log",
    threads: get_cores_of_check
    resources:
        machine=get_machine_of_check,
        tasks=1,
    params:
        trainers=get_trainers,
        minutes=get_minutes,
    message:
        "{wildcards.check} of {wildcards.trainer}"
    shell:
        "exec python -P -m ckptbench.workflow check-trainer {wildcards.trainer} {wildcards.check} --trainers={params.trainers:q}"
        " --environment $(dirname {input.environment}) --minutes {params.minutes} --output {output} --parent $WORKFLOW --log {log}"


rule write_scoreboard:
    """Write the table of trainers, its page and its figure."""
    input:
        cells=get_all_answers(),
        files=get_sources("write-scoreboard", ()),
    output:
        table=SCOREBOARD,
        others=expand("results/trainers.{format}", format=["md", "png", "pdf", "txt"]),
    log:
        "results/logs/write_scoreboard.log",
    localrule: True
    params:
        trainers=get_trainers,
    message:
        "the scoreboard of trainers"
    shell:
        "python -P -m ckptbench.workflow write-scoreboard {input.cells} --trainers={params.trainers:q} --output {output.table} --log {log}"

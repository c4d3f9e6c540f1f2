# One run a cell. A run that is timed has the machine, or its nodes of a cluster, to itself.
rule train_cell:
    input:
        environment=get_environment,
        dataset=get_dataset,
        script=ancient("scripts/train_cell.py"),
    output:
        seal="results/runs/{cell}/seal.json",
    log:
        "results/logs/train_cell/{cell}.log",
    priority: get_priority
    threads: get_threads
    resources:
        machine=1,
        tasks=get_ranks,
        gpus=get_gpus,
    params:
        cell=get_cell,
        training=TRAINING,
        lock=get_lock,
        checkpoints=get_checkpoints,
        study=STUDY,
    message:
        "train {wildcards.cell}"
    shell:
        # exec: the launcher must see when the workflow that started it is gone.
        "exec python {input.script} --cell {params.cell:q} --training {params.training:q}"
        " --dataset $(dirname {input.dataset}) --environment $(dirname {input.environment})"
        " --lock {params.lock} --runs results/runs --checkpoints {params.checkpoints:q}"
        " --study {params.study} --log {log}"

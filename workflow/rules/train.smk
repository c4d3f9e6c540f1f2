# A run is timed, so it has the machine, or on a cluster its nodes, to itself.
rule train_cell:
    """Train one cell of the matrix in a run of its own."""
    input:
        environment=by_content("train_cell", get_environment),
        dataset=by_content("train_cell", get_dataset),
        script=ancient("scripts/train_cell.py"),
        mark=get_mark("train_cell"),
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
        levels=get_levels,
        failures=get_failures,
        study=STUDY,
    message:
        "train {wildcards.cell}"
    shell:
        # With exec the launcher's parent is the workflow. The launcher ends when that is gone, even if it is gone
        # before the launcher has begun.
        "exec python {input.script} --cell {params.cell:q} --training {params.training:q}"
        " --dataset $(dirname {input.dataset}) --environment $(dirname {input.environment})"
        " --lock {params.lock} --runs results/runs --checkpoints {params.checkpoints:q}"
        " {params.levels:q} {params.failures:q}"
        " --study {params.study} --parent $WORKFLOW --log {log}"

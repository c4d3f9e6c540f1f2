# Lock -> environment, settings -> dataset, both -> runs. Environments, datasets and runs take long to make, so the times of files do
# not count here (`ancient`): they are made again where their params differ from those that Snakemake has noted. A sealed run that
# would be made from the same is kept even then.
rule create_environment:
    """Make the environment of a framework from its lock."""
    input:
        lock=ancient(of_clone("envs/{environment}.txt")),
        constraints=ancient(CONSTRAINTS),
        script=ancient(of_clone("src/ckptbench/workflow/create_environment.py")),
        recipe=get_recipe,
    output:
        ready=".environments/{environment}/ready.json",
    log:
        "results/logs/create_environment/{environment}.log",
    localrule: True
    params:
        packages=get_packages,
    message:
        "environment {wildcards.environment} from {input.lock}"
    shell:
        # With exec its parent is the workflow: the environment is not made to the end when that is gone.
        "exec python -P -m ckptbench.workflow create-environment {input.lock} .environments/{wildcards.environment}"
        " --constraints {input.constraints} --parent $WORKFLOW --log {log}"


rule use_environment:
    """Describe an environment that is there already, and start its Python by a script. Nothing is installed into it."""
    output:
        ready="results/environments/{environment}/ready.json",
    log:
        "results/logs/use_environment/{environment}.log",
    localrule: True
    params:
        environment=get_present,
    message:
        "environment {wildcards.environment}, which is there"
    shell:
        "python -P -m ckptbench.workflow use-environment results/environments/{wildcards.environment}"
        " --environment {params.environment:q} --log {log}"


rule environments:
    """The environments that the study needs."""
    input:
        get_all_environments(),


rule prepare_dataset:
    """Prepare a dataset as memory-mapped arrays."""
    input:
        environment=ancient(ready_of(DATA)),
        script=ancient(of_clone("src/ckptbench/workflow/prepare_dataset.py")),
    output:
        "results/datasets/{dataset}/dataset.json",
    log:
        "results/logs/prepare_dataset/{dataset}.log",
    localrule: True
    params:
        settings=get_dataset_settings,
        samples=get_samples,
        source=get_source,
    message:
        "dataset {wildcards.dataset}"
    shell:
        "PYTHONPATH={params.source:q} $(dirname {input.environment})/bin/python -P -m ckptbench.workflow prepare-dataset"
        " {wildcards.dataset} results/datasets/{wildcards.dataset} --settings {params.settings:q} --log {log}"


# A run is timed, so it has the machine, or on a cluster its nodes, to itself. It has no `benchmark:`, for which Snakemake would read
# the memory of all ranks twice a second: the run folder has the time and the memory of each.
rule train_cell:
    """Train one cell of the matrix in a run of its own."""
    input:
        environment=alike(get_environment),
        dataset=alike(get_dataset),
        script=ancient(of_clone("src/ckptbench/workflow/train_cell.py")),
    output:
        seal="results/runs/{cell}/seal.json",
    log:
        "results/logs/train_cell/{cell}.log",
    priority: get_priority
    threads: get_threads
    resources:
        machine=1,
        tasks=get_ranks,
        gpus=alike(get_gpus),
    params:
        cell=get_cell,
        training=alike(get_training),
        lock=alike(get_lock),
        packages=alike(get_environment_sha256),
        settings=alike(get_dataset_settings),
        samples=alike(get_samples),
        checkpoints=get_checkpoints,
        levels=alike(get_levels),
        failures=alike(get_failures),
        study=STUDY,
    message:
        "train {wildcards.cell}"
    shell:
        # With exec the launcher's parent is the workflow. The launcher ends when that is gone, even if it is gone
        # before the launcher has begun.
        "exec python -P -m ckptbench.workflow train-cell --cell {params.cell:q} --training {params.training:q}"
        " --dataset $(dirname {input.dataset}) --environment $(dirname {input.environment})"
        " --lock {params.lock} --packages {params.packages} --settings {params.settings:q} --runs results/runs --checkpoints={params.checkpoints:q}"
        " {params.levels:q} {params.failures:q}"
        " --study {params.study} --parent $WORKFLOW --log {log}"

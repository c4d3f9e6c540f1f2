# If a lock changes, its environment is made again, and the runs in it are repeated.
rule create_environment:
    """Make the environment of a framework from its lock."""
    input:
        lock=ancient("envs/{environment}.txt"),
        constraints=ancient("envs/build-constraints.txt"),
        script=ancient("scripts/create_environment.py"),
        recipe=get_recipe,
        mark=get_mark("create_environment"),
    output:
        ready=".environments/{environment}/ready.json",
    log:
        "results/logs/create_environment/{environment}.log",
    localrule: True
    message:
        "environment {wildcards.environment} from {input.lock}"
    shell:
        # With exec its parent is the workflow: the environment is not made to the end when that is gone.
        "exec python {input.script} {input.lock} .environments/{wildcards.environment}"
        " --constraints {input.constraints} --parent $WORKFLOW --log {log}"


rule environments:
    """The environments that the study needs."""
    input:
        get_all_environments(),

# One environment per framework, from its lock: a changed lock rebuilds it, and reruns what ran in it.
rule create_environment:
    input:
        lock="envs/{environment}.txt",
        constraints="envs/build-constraints.txt",
        script="scripts/create_environment.py",
        recipe=get_recipe,
    output:
        ready=".environments/{environment}/ready.json",
    log:
        "results/logs/create_environment/{environment}.log",
    localrule: True
    message:
        "environment {wildcards.environment} from {input.lock}"
    shell:
        "python {input.script} {input.lock} .environments/{wildcards.environment}"
        " --constraints {input.constraints} --log {log}"

# One run a cell. A run that is timed has the machine to itself.
def get_environment(wildcards):
    return f".environments/{CELLS[wildcards.cell].environment}/ready.json"


def get_lock(wildcards):
    return f"envs/{CELLS[wildcards.cell].environment}.txt"


def get_dataset(wildcards):
    return f"results/datasets/{CELLS[wildcards.cell].dataset}/dataset.json"


def get_cell(wildcards):
    return json.dumps(CELLS[wildcards.cell].to_json())


def get_priority(wildcards):
    return PRIORITY[wildcards.cell]


def get_run_options():
    """What carries a run out without changing what it measures: no reason to run it again."""
    options = ["--keep-after-run", str(CONFIG.checkpoints.keep_after_run)]
    if CONFIG.checkpoints.folder:
        options += ["--checkpoints", str(CONFIG.checkpoints.folder)]
    if CONFIG.limits.run_minutes:
        options += ["--run-minutes", str(CONFIG.limits.run_minutes)]
    return [*options, *(["--resume"] if CONFIG.resume else [])]


RUN_OPTIONS = get_run_options()


rule train_cell:
    input:
        environment=get_environment,
        dataset=get_dataset,
        script=ancient("scripts/train_cell.py"),
    output:
        seal="results/runs/{cell}/seal.json",
    log:
        "results/logs/train_cell/{cell}.log",
    params:
        cell=get_cell,
        training=TRAINING,
        lock=get_lock,
    priority: get_priority
    threads: workflow.cores
    resources:
        machine=1,
    message:
        "train {wildcards.cell}"
    shell:
        # exec: the launcher must see when the workflow that started it is gone.
        "exec {PYTHON:q} {input.script} --cell {params.cell:q} --training {params.training:q}"
        " --dataset $(dirname {input.dataset}) --environment $(dirname {input.environment})"
        " --lock {params.lock} --runs results/runs --study {STUDY} --log {log} {RUN_OPTIONS:q}"

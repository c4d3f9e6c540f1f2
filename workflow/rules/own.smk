# The study of an own training: a command with placeholders, each run of it under the probe. Environment and data are the user's.
from ckptbench.own.record import OwnStudy, changed
from ckptbench.study.failed import lines_of

RUN_RULE = "train_own"
STUDY = "results/own/study.json"


wildcard_constraints:
    cell=NAME,


@functools.cache
def get_outdated_runs():
    """What has changed since the complete runs were made, by the id of each outdated cell."""
    found = {
        cell_id: changed(Path(RUNS, cell_id), cell) for cell_id, cell in CELLS.items()
    }
    return {
        cell_id: [f"own.{name}" for name in why]
        for cell_id, why in found.items()
        if why
    }


OUTDATED = {RUN_RULE: get_outdated_runs}


def get_cell(wildcards):
    return json.dumps(CELLS[wildcards.cell].to_json())


def get_command(wildcards):
    return CELLS[wildcards.cell].command


def get_ranks(wildcards):
    return CELLS[wildcards.cell].ranks


def get_gpus(wildcards):
    return CELLS[wildcards.cell].gpus


# A run is timed, so it has the machine, or on a cluster its nodes, to itself.
rule train_own:
    """Make one run of an own training under the probe."""
    input:
        script=ancient("scripts/train_own.py"),
        mark=get_mark("train_own"),
    output:
        seal="results/own/runs/{cell}/seal.json",
    log:
        "results/own/logs/train_own/{cell}.log",
    priority: get_priority
    threads: get_threads
    resources:
        machine=1,
        tasks=get_ranks,
        gpus=get_gpus,
    params:
        cell=get_cell,
        command=get_command,
        runs=RUNS,
        study=STUDY,
    message:
        "train {wildcards.cell}: {params.command}"
    shell:
        # As in rule train_cell: what is started ends when the workflow is gone.
        "exec python {input.script} --cell {params.cell:q} --runs {params.runs} --study {params.study}"
        " --parent $WORKFLOW --log {log}"


def write_study():
    """Write the record that runs read when they start. A change of it makes no run again."""
    record = OwnStudy(
        cells=tuple(CELLS.values()),
        keep=CONFIG.own.keep,
        run_minutes=CONFIG.limits.run_minutes,
        repeat=is_forced(),
    )
    try:
        record.write(Path(STUDY))
    except OSError as error:
        raise WorkflowError(
            f"{STUDY} cannot be written: {blame(error, STUDY)}"
        ) from None


def show_failed():
    """Print which runs failed and why."""
    done = sum(map(os.path.exists, get_all_seals()))
    failed = get_failed()
    print("\n".join(lines_of(failed)), file=sys.stderr)
    again = (
        "mend the cause and start the study again"
        if failed
        else "start the study again"
    )
    needs = " The answer needs all of them." if done < len(CELLS) else ""
    print(
        f"\n{done} of {len(CELLS)} runs are complete. They stay and are not repeated.{needs} To go on, {again}",
        file=sys.stderr,
    )

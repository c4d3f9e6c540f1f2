# What the rules of trainers.smk, and the end of the workflow, call.
import os

from ckptbench.config.trainers import CHECKS, COST

FOUND_OUT = "results/trainers"
SCOREBOARD = "results/trainers.csv"


def get_all_answers():
    """The files of all cells. Of a config without trainers there are none."""
    checks = CONFIG.trainers.checks if ROWS else []
    return [
        f"{FOUND_OUT}/{name}/{check}.json"
        for check in checks
        for name, row in ROWS.items()
        if check in row.checks
    ]


def get_scoreboard():
    return [SCOREBOARD]


def find_lost_rows():
    """Names of trainers whose environment has no lock."""
    return [
        f"trainers/{row.folder.name}/trainer.yaml: environment is {row.trainer.environment}: there is no {lock}: use a lock of envs"
        for row in ROWS.values()
        for lock in [lock_of(row.trainer.environment)]
        if present_name(row.trainer.environment) not in FOUND
        and not Path(lock).exists()
    ]


def show_scoreboard():
    """Print where it is."""
    if ROWS and "write_scoreboard" in get_planned():
        print(f"The scoreboard: {SCOREBOARD} and .png", file=sys.stderr)


def draw_what_is_there():
    """Draw the answers that are there, where some could not be had, as of an environment that cannot be made."""
    there = [path for path in get_all_answers() if Path(path).exists()]
    if there:
        shell(
            "python -P -m ckptbench.workflow write-scoreboard {there} --trainers={TRAINERS:q} --output {SCOREBOARD}"
        )


def get_files_of_trainer(wildcards):
    """A change of them makes its answers again."""
    folder = ROWS[wildcards.trainer].folder
    return sorted(str(path) for path in folder.iterdir() if path.is_file())


def get_environment_of_trainer(wildcards):
    return ready_of(ROWS[wildcards.trainer].trainer.environment)


def get_cores_of_check(wildcards):
    """What a save costs is timed, so it has the machine to itself."""
    return get_threads(wildcards) if wildcards.check == COST else 1


def get_machine_of_check(wildcards):
    return 1 if wildcards.check == COST else 0


def get_trainers(wildcards):
    return str(TRAINERS)


def get_minutes(wildcards):
    return CONFIG.trainers.cell_minutes


if lost := find_lost_rows():
    raise WorkflowError("\n".join(lost))


def get_results():
    """All that the default target makes, of a config without trainers."""
    return [
        *get_all_seals(),  # a run that was removed is made again, though there are tables of it
        *get_all_figures(),
        *get_tables([*TABLES, *DECIDED]),
        get_mark(OF_RUNS),
        get_mark(OF_DECISION),
        ANSWER,
        PAGE,
    ]

# Which runs, environments and datasets of the study of the matrix are outdated.
from ckptbench.data.sources import changes as changes_of_dataset
from ckptbench.environments.ready import changes as changes_of_environment
from ckptbench.environments.ready import described
from ckptbench.study.outdated_runs import StudyRuns


@functools.cache
def get_outdated_environments():
    locks = {path.stem: path for path in Path("envs").glob("*.txt")}
    found = {
        name: changes_of_environment(
            Path(".environments", name), described(lock, Path(CONSTRAINTS))
        )
        for name, lock in locks.items()
        if Path(".environments", name).exists()
    }
    return {name: why for name, why in found.items() if why}


@functools.cache
def get_outdated_datasets():
    found = {
        name: changes_of_dataset(Path(DATASETS, name), getattr(CONFIG.datasets, name))
        for name in {cell.dataset for cell in CELLS.values()}
    }
    return {name: why for name, why in found.items() if why}


@functools.cache
def get_outdated_runs():
    checkpoints = CONFIG.checkpoints
    return StudyRuns(
        training=CONFIG.training_of_cells(),
        runs=Path("results/runs"),
        checkpoints=Path(checkpoints.folder or "results/runs"),
        datasets=Path(DATASETS),
        outdated_datasets=frozenset(get_outdated_datasets()),
        locks=Path("envs"),
        constraints=Path(CONSTRAINTS),
        levels={
            "memory_folder": checkpoints.memory_folder,
            "node_folder": checkpoints.node_folder,
        },
        listed={name: list_of_failures(name) for name in CONFIG.failures},
    ).changes(CELLS.values())


RUN_RULE = "train_cell"
OUTDATED = {
    RUN_RULE: get_outdated_runs,
    "create_environment": get_outdated_environments,
    "prepare_dataset": get_outdated_datasets,
}

"""The cluster profiles on a machine without a scheduler: planned, printed to the letter, refused without a group."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from checkout import PROFILES, ROOT, Checkout
from selection import FULL

from tests.study.warm.environments import warm_snakemake

STUDY = "config/studies/rojas-abci.yaml"  # GPUs, 1 to 256 of them
SCHEDULERS = {"sbatch", "srun", "sacct", "squeue", "scancel", "scontrol", "qsub", "qstat", "qdel"}
CLUSTERS = tuple(profile for profile in PROFILES if profile != "local")
PLANNED = CLUSTERS if FULL else ("slurm", "abci")
"""Below, jobs of every profile are printed. To print them, the study is planned as well."""
REFUSED = ("abci", "tsubame4", "polaris") if FULL else ("abci",)


def snakemake(
    checkout: Checkout, profile: str, *options: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """As on a fresh login node: no scheduler's program, no variable set."""
    kept = {name: value for name, value in os.environ.items() if "SUBMITIT" not in name}
    return subprocess.run(
        [warm_snakemake(), "-m", "snakemake", "--profile", profile, *options, "--configfile", STUDY],
        cwd=checkout.folder,
        env={**kept, "PATH": str(checkout.folder / "bin"), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    made = Checkout.make(tmp_path_factory.mktemp("profiles") / "checkout")
    programs = made.folder / "bin"
    programs.mkdir()
    for path in Path("/usr/bin").iterdir():
        if path.name not in SCHEDULERS:
            (programs / path.name).symlink_to(path)
    return made


@pytest.mark.parametrize("profile", PLANNED)
def test_a_study_is_planned_without_a_scheduler_or_a_group(
    checkout: Checkout, profile: str
) -> None:
    planned = snakemake(checkout, profile, "-n")
    assert planned.returncode == 0, planned.stdout
    assert re.search(r"^train_cell +420$", planned.stdout, re.MULTILINE)
    # Sixty runs of each number of ranks, two hours each: on 1 + 2 + 4 + ... + 64 nodes of four GPUs, or of eight.
    most, largest = ("7,680", 32) if profile == "abci" else ("15,240", 64)
    outlook, _, _ = planned.stdout.partition("Building DAG of jobs...")
    assert f"at most {most}: 120 min a run on 1 - {largest} nodes, none requeued" in outlook


@pytest.mark.parametrize("profile", REFUSED)
def test_without_a_group_nothing_is_submitted(checkout: Checkout, profile: str) -> None:
    refused = snakemake(checkout, profile, "runs")
    assert refused.returncode == 1
    assert "No account is set for train_cell" in refused.stdout
    assert "SNAKEMAKE_SUBMITIT_ACCOUNT" in refused.stdout
    assert not list((checkout.folder / ".snakemake").glob("submitit/*"))


def test_without_the_schedulers_programs_nothing_is_submitted(checkout: Checkout) -> None:
    refused = snakemake(checkout, "slurm", "runs")
    assert refused.returncode == 1
    assert "--submitit-cluster slurm needs sbatch" in refused.stdout


def submission(checkout: Checkout, profile: str, ranks: int, *options: str) -> list[str]:
    """The command and the directives of the file that would be submitted for runs of so many ranks."""
    printed = snakemake(
        checkout, profile, "runs", "--submitit-dry-run", *options,
        SNAKEMAKE_SUBMITIT_ACCOUNT="gxx50000",
    )  # fmt: skip
    assert printed.returncode == 0, printed.stdout
    blocks = re.split(r"^# \d+ x train_cell.*$", printed.stdout, flags=re.MULTILINE)
    (block,) = (block for block in blocks if f"-r{ranks}-" in block)
    folder = str(checkout.folder / ".snakemake" / "submitit")
    lines = [line.strip().replace(folder, "FOLDER") for line in block.splitlines()]
    return [line for line in lines if re.match(r"#SBATCH|#PBS|#\$|sbatch|qsub", line)]


def test_slurm_gets_exclusive_nodes_of_four_gpus(checkout: Checkout) -> None:
    assert submission(checkout, "slurm", 8) == [
        "sbatch FOLDER/submission.sh",
        "#SBATCH --account=gxx50000",
        "#SBATCH --array=0-19%20",
        "#SBATCH --cpus-per-task=8",
        "#SBATCH --error=FOLDER/%A_%a_0_log.err",
        "#SBATCH --exclusive",
        "#SBATCH --gpus-per-node=4",
        "#SBATCH --job-name=train_cell",
        "#SBATCH --mem=0",
        "#SBATCH --nodes=2",
        "#SBATCH --ntasks-per-node=4",
        "#SBATCH --open-mode=append",
        "#SBATCH --output=FOLDER/%A_%a_0_log.out",
        "#SBATCH --requeue",
        "#SBATCH --signal=B:USR2@120",
        "#SBATCH --time=120",
    ]


def test_abci_gets_whole_nodes_of_eight_gpus_by_select(checkout: Checkout) -> None:
    assert submission(checkout, "abci", 32) == [
        "qsub FOLDER/submission.sh",
        "#PBS -N train_cell",
        "#PBS -S FOLDER/pbs-shell",
        "#PBS -V",
        "#PBS -r y",
        "#PBS -j n",
        "#PBS -o FOLDER/",
        "#PBS -e FOLDER/",
        "#PBS -q rt_HF",
        "#PBS -P gxx50000",
        "#PBS -l select=4",
        "#PBS -l walltime=02:00:00",
        "#PBS -J 0-19",
    ]


def test_polaris_gets_nodes_scattered_and_the_file_systems_that_it_uses(checkout: Checkout) -> None:
    lines = submission(checkout, "polaris", 8, "--submitit-queue", "debug-scaling")
    assert [line for line in lines if re.match(r"#PBS -[qAl]", line)] == [
        "#PBS -q debug-scaling",
        "#PBS -A gxx50000",
        "#PBS -l select=2:system=polaris",
        "#PBS -l place=scatter",
        "#PBS -l walltime=01:00:00",
        "#PBS -l filesystems=home:eagle",
    ]


def test_a_site_that_wants_the_type_of_gpus_gets_it(checkout: Checkout) -> None:
    typed = ("--set-resources", "train_cell:options=gpus_per_node=h100:4")
    assert "#SBATCH --gpus-per-node=h100:4" in submission(checkout, "slurm", 8, *typed)
    fixed = ("--submitit-options", "exclusive=true", "gpus_per_node=h100:4")
    assert "#SBATCH --gpus-per-node=h100:4" in submission(checkout, "slurm", 8, *fixed)


def test_a_reservation_of_abci_is_a_queue_and_the_kind_of_its_nodes_a_variable(
    checkout: Checkout,
) -> None:
    options = ("--submitit-queue", "R123456", "--submitit-options", "chunk=", 'extra=["-v RTYPE=rt_HF,USE_SSH=1"]')  # fmt: skip
    lines = submission(checkout, "abci", 32, *options)
    assert {"#PBS -q R123456", "#PBS -l select=4", "#PBS -v RTYPE=rt_HF,USE_SSH=1"} <= set(lines)


def test_one_gpu_of_abci_is_a_queue_and_a_run_of_more_is_refused_by_the_plan(
    checkout: Checkout,
) -> None:
    """A job of its queues for parts of a node has one of these."""
    options = ("--submitit-queue", "rt_HG", "--submitit-tasks-per-node", "1")
    planned = snakemake(checkout, "abci", "-n", *options)
    assert "256 for 256 ranks, and a job has 1 at most (max_nodes)" in planned.stdout
    refused = snakemake(
        checkout, "abci", "runs", "--submitit-dry-run", *options, SNAKEMAKE_SUBMITIT_ACCOUNT="g"
    )
    assert refused.returncode == 1
    assert re.search(
        r"train_cell: \d+ nodes, but a job in the queue rt_HG has at most 1 \(max_nodes\): request fewer",
        refused.stdout,
    )


def test_pbs_gets_nodes_of_its_own_with_their_cores_and_gpus(checkout: Checkout) -> None:
    lines = submission(checkout, "pbs", 8, "--submitit-queue", "gpu")
    assert [line for line in lines if re.match(r"#PBS -[qPl]", line)] == [
        "#PBS -q gpu",
        "#PBS -P gxx50000",
        "#PBS -l select=2:ncpus=32:mpiprocs=4:ngpus=4",
        "#PBS -l place=scatter:exclhost",
        "#PBS -l walltime=02:00:00",
    ]


def test_tsubame_gets_whole_nodes_of_four_gpus(checkout: Checkout) -> None:
    assert submission(checkout, "tsubame4", 32) == [
        "qsub -terse -g gxx50000 FOLDER/submission.sh",
        "#$ -S /bin/bash",
        "#$ -N train_cell",
        "#$ -cwd",
        "#$ -V",
        "#$ -r y",
        "#$ -notify",
        "#$ -l h_rt=7200",
        "#$ -l node_f=8",
        '#$ -o "FOLDER/$JOB_ID_$TASK_ID_0_log.out"',
        '#$ -e "FOLDER/$JOB_ID_$TASK_ID_0_log.err"',
        "#$ -t 1-20",
    ]


def test_grid_engine_gets_slots_of_a_parallel_environment(checkout: Checkout) -> None:
    options = ("--submitit-options", "parallel_environment=mpi", "gpu_resource=gpu")
    lines = submission(checkout, "gridengine", 8, *options)
    assert "qsub -terse -P gxx50000 FOLDER/submission.sh" in lines
    assert "#$ -pe mpi 64" in lines


def test_every_profile_has_a_link_at_the_root_and_a_row_in_the_docs() -> None:
    folders = {path.parent.name for path in (ROOT / "profiles").glob("*/config.yaml")}
    assert folders == {*PROFILES}
    assert {path.name for path in ROOT.iterdir() if path.is_symlink()} >= folders
    rows = re.findall(
        r"^\|\s?`([\w-]+)`\s?\|", (ROOT / "docs/cluster.md").read_text(), re.MULTILINE
    )
    assert sorted(rows) == sorted(CLUSTERS)


def test_gpus_without_the_name_of_their_resource_are_one_error(checkout: Checkout) -> None:
    refused = snakemake(checkout, "gridengine", "runs", "--submitit-dry-run")
    assert refused.returncode == 1
    assert "gpu_resource" in refused.stdout

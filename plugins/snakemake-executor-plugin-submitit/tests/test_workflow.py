"""What is refused of a whole workflow before anything is submitted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SNAKEFILE = """
rule one:
    output: "out"
    resources: runtime=RUNTIME
    shell: "touch {output}"
"""


@pytest.mark.parametrize(
    ("runtime", "option", "words"),
    [
        ("5", "--immediate-submit", "--immediate-submit is not supported"),
        ("0", "--printshellcmds", "one: runtime=0 is less than 1."),
    ],
)
def test_what_cannot_be_submitted_is_refused_in_one_line(
    tmp_path: Path, runtime: str, option: str, words: str
):
    (tmp_path / "Snakefile").write_text(SNAKEFILE.replace("RUNTIME", runtime))
    command = [sys.executable, "-m", "snakemake", "--executor", "submitit", "--jobs", "2"]
    done = subprocess.run(
        [*command, "--submitit-cluster", "slurm", "--notemp", option],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_the_folder_of_a_run_is_for_its_user_alone(tmp_path: Path):
    """It has logs and pickles. The job is refused."""
    (tmp_path / "Snakefile").write_text(SNAKEFILE.replace("RUNTIME", "5"))
    for name in ("sbatch", "squeue", "scancel", "scontrol", "sacct", "sacctmgr"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    command = [sys.executable, "-m", "snakemake", "--executor", "submitit", "--jobs", "2"]
    done = subprocess.run(
        [*command, "--submitit-cluster", "slurm", "--submitit-folder", "runs"],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert "did not take the job" in done.stderr
    (folder,) = (path for path in (tmp_path / "runs").iterdir() if path.is_dir())
    assert folder.stat().st_mode & 0o777 == 0o700

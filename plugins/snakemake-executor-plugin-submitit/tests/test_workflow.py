"""Whole workflows, with processes on this machine."""

import subprocess
import sys
from pathlib import Path

RETRIED = """
rule again:
    output: "out"
    retries: 1
    resources: runtime=lambda wildcards, attempt: 5 * attempt
    shell: "echo {resources.runtime} >> tries; test {resources.runtime} = 10 && touch {output}"
"""


def snakemake(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "Snakefile").write_text(text)
    command = [sys.executable, "-m", "snakemake", "--executor", "submitit"]
    command += ["--submitit-cluster", "local", "--jobs", "1", *options]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )


def test_each_try_of_a_rule_is_a_job_with_the_resources_of_that_try(tmp_path: Path):
    done = snakemake(tmp_path, RETRIED)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "tries").read_text().split() == ["5", "10"]
    assert "local: 2 jobs in 2 submissions" in done.stderr


def test_immediate_submit_is_refused_in_one_line(tmp_path: Path):
    done = snakemake(tmp_path, RETRIED, "--immediate-submit", "--notemp")
    assert done.returncode == 1
    assert "--immediate-submit is not possible with this executor" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "tries").exists()

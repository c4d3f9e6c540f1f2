"""What is refused of a whole workflow before anything is submitted."""

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
        ("5", "--immediate-submit", "--immediate-submit is not possible with this executor"),
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

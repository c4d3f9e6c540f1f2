"""How fast ready jobs reach a scheduler. The promise: 1,000 jobs of one shape in under 30 s.

A whole Snakemake with the submitit executor submits jobs that run `true` to the Slurm of this machine. The clock runs
from Snakemake's decision to execute the jobs until all have an id. The jobs are held, because a thousand nested Snakemakes
would compete with the submission for this machine. They are cancelled at the end. `--polls` continues for some minutes
to count status queries.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROMISE_S = 30
PATIENCE_S = 300
SNAKEFILE = """
rule all:
    input: expand("out/{{i}}", i=range({jobs}))
rule one:
    output: "out/{{i}}"
    resources: runtime=5, mem_mb=100
    shell: "true"
"""
OPTIONS = [
    "--executor",
    "submitit",
    "--submitit-cluster",
    "slurm",
    "--submitit-options",
    "hold=true",
    "--scheduler",
    "greedy",
    "--latency-wait",
    "0",
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--polls", type=float, default=0, help="minutes of polling to count")
    parser.add_argument("--single", action="store_true", help="no arrays: one sbatch per job")
    parser.add_argument("--jobs-per-second", type=int, default=1000, help="Snakemake's own limit")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="submission-rate-") as folder:
        (Path(folder) / "Snakefile").write_text(SNAKEFILE.format(jobs=options.jobs))
        launched = time.monotonic()
        process = start(Path(folder), options)
        try:
            seconds = measure(process, options.jobs)
            whole = time.monotonic() - launched
            time.sleep(60 * options.polls)
        finally:
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=PATIENCE_S)
    print(
        f"{options.jobs} jobs submitted in {seconds:.1f} s ({options.jobs / seconds:.0f} a second), "
        f"{whole:.1f} s with Snakemake's own start"
    )
    print(re.findall(r"slurm: .* status queries .*", said)[-1])
    return 0 if options.jobs < 1000 or whole * 1000 / options.jobs < PROMISE_S else 1


def start(folder: Path, options: argparse.Namespace) -> subprocess.Popen[str]:
    limits = ["--jobs", str(options.jobs)]
    limits += ["--max-jobs-per-timespan", f"{options.jobs_per_second}/1s"]
    limits += ["--submitit-array-size", "1"] if options.single else []
    return subprocess.Popen(
        [sys.executable, "-m", "snakemake", *OPTIONS, *limits],
        cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def measure(process: subprocess.Popen[str], jobs: int) -> float:
    """Seconds from the first `Execute ... jobs` to the last id."""
    started, submitted, said = 0.0, 0, []
    assert process.stdout is not None
    for line in process.stdout:
        said.append(line)
        if not started and line.startswith("Execute "):
            started = time.monotonic()
        submitted += "was submitted: slurm job" in line
        if submitted == jobs:
            return time.monotonic() - started
    sys.exit(f"Snakemake ended after {submitted} of {jobs} submissions:\n{''.join(said[-30:])}")


if __name__ == "__main__":
    sys.exit(main())

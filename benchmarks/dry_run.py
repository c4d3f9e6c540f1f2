"""Time of a dry run of 1,000 cells ÷ that of a bare Snakefile with as many jobs. The promise: at most 1.7.

A job of the study has eleven functions more than one of the bare Snakefile (params, inputs and resources), which Snakemake evaluates: that
is most of the difference. Both are whole processes that run in turn on this machine: `snakemake --quiet -n` on the study with a config of
1,000 cells, and on a Snakefile of two rules with 1,000 jobs of the same names.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml
from ratio import report

from ckptbench.config.expansion import expand
from ckptbench.config.study import load_config

ROOT = Path(__file__).resolve().parents[1]
STUDY = {
    "repeats": 10,
    "training": {"warmup_steps": 1},
    "exclude": [],
    "include": [],
    "matrix": {
        "framework": ["pytorch"],
        "ranks": [1, 2, 4, 8, 16],
        "batch_size": [8, 16, 32, 64],
        "epochs": 10,
        "interval": [1, 2, 5, 10],
    },
}
BARE = """
CELLS = open("cells.txt").read().split()
rule all:
    input:
        expand("results/{cell}.done", cell=CELLS)
rule job:
    output:
        "results/{cell}.done"
    shell:
        "touch {output}"
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    cells = [cell.id for cell in expand(load_config(STUDY))]
    with tempfile.TemporaryDirectory() as folder:
        bare, study = Path(folder) / "bare", Path(folder) / "study"
        for made in (bare, study):
            made.mkdir()
        (bare / "Snakefile").write_text(BARE, encoding="utf-8")
        (bare / "cells.txt").write_text("\n".join(cells), encoding="utf-8")
        config = study / "config.yaml"
        config.write_text(yaml.safe_dump(STUDY), encoding="utf-8")
        pairs = [
            (
                dry_run(ROOT / "Snakefile", study, ["--configfile", str(config)]),
                dry_run(bare / "Snakefile", bare, []),
            )
            for _ in range(options.repeats)
        ]
    print(f"dry run of {len(cells)} cells, and of a bare Snakefile with as many jobs")
    report(pairs, "study", "bare", promise=1.7)


def dry_run(snakefile: Path, folder: Path, options: list[str]) -> float:
    """Seconds of one dry run in `folder`. Links in it make the files visible that the workflow finds by relative paths."""
    for name in ("envs", "src", "config", "workflow"):
        link = folder / name
        if snakefile.parent == ROOT and not link.exists():
            link.symlink_to(ROOT / name)
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(snakefile), "-n", "--quiet"]
    started = time.perf_counter()
    subprocess.run(
        [*command, "--cores", "1", *options], cwd=folder, check=True, capture_output=True
    )
    return time.perf_counter() - started


if __name__ == "__main__":
    main()

"""A checkout of its own for each test: the project's files, the environments that exist, and empty results."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from tests.study.warm.environments import warm_snakemake

ROOT = Path(__file__).resolve().parents[2]
COLD = ROOT / ".environments"
"""The real environments: each process imports its framework. `warm.environments` has others."""
PROFILES = ("local", "slurm", "gridengine", "pbs", "abci", "polaris", "tsubame4")
LINKED = ("Snakefile", "src", "workflow", "profiles", *PROFILES)
COPIED = ("config", "envs")


@dataclass(frozen=True)
class Checkout:
    """Runs the workflow as a user does: from the root, with a profile."""

    folder: Path
    profile: str = "local"
    options: tuple[str, ...] = ()
    """Of every call, beside those of the profile."""

    @classmethod
    def make(
        cls,
        folder: Path,
        profile: str = "local",
        *options: str,
        environments: Path = COLD,
    ) -> Checkout:
        folder.mkdir(parents=True)
        (folder / ".environments").symlink_to(environments)
        for name in LINKED:
            (folder / name).symlink_to(ROOT / name)
        for name in COPIED:
            shutil.copytree(ROOT / name, folder / name)
        return cls(folder, profile, options)

    def change_environments(self, environments: Path) -> None:
        link = self.folder / ".environments"
        link.unlink()
        link.symlink_to(environments)

    def command(
        self,
        *options: str,
        study: str = "config/studies/tiny.yaml",
        more: Sequence[str] = (),
    ) -> list[str]:
        """`more` are config files that override the study."""
        snakemake = [sys.executable, "-m", "snakemake", "--profile", self.profile]
        return [*snakemake, *options, *self.options, "--configfile", study, *more]

    def run(
        self,
        *options: str,
        study: str = "config/studies/tiny.yaml",
        more: Sequence[str] = (),
        cold: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """To its end. `cold`: in a Snakemake that imports the library itself, as all that `start` and `make` start do."""
        interpreter, *words = self.command(*options, study=study, more=more)
        return subprocess.run(
            [interpreter if cold else str(warm_snakemake()), *words],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def make_target(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`make` with these arguments, in the environment that the tests run in."""
        # Under another make it would say which folder it enters and leaves.
        own = ["--no-print-directory", "-o", "environment", f"BIN={Path(sys.executable).parent}"]
        return subprocess.run(
            ["make", "-f", ROOT / "Makefile", *own, *arguments],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def start(
        self, *options: str, study: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """The workflow in the background, in a process group of its own as in a terminal; with more variables."""
        log = (self.folder / "workflow.log").open("ab")
        return subprocess.Popen(
            self.command(*options, study=study),
            cwd=self.folder,
            env={**os.environ, **(environment or {})},
            stdout=log,
            stderr=log,
            process_group=0,
        )

    def seals(self) -> dict[str, int]:
        """When each sealed run ended, by cell id: when its manifest was written, for Snakemake touches the seal."""
        seals = (self.folder / "results" / "runs").glob("*/seal.json")
        manifests = [path.with_name("manifest.json") for path in seals]
        return {path.parent.name: path.stat().st_mtime_ns for path in manifests}

    def is_drawn(self, figure: str) -> bool:
        """Whether the figure is there as PDF and as PNG."""
        stem = self.folder / "results" / "figures" / figure
        return stem.with_suffix(".pdf").read_bytes().startswith(b"%PDF") and stem.with_suffix(
            ".png"
        ).read_bytes().startswith(b"\x89PNG")

    def table(self, name: str) -> pd.DataFrame:
        path = self.folder / "results" / "tables" / f"{name}.parquet"
        return pd.read_parquet(path, use_threads=False)  # as analysis.tables.store does


def ranks_of(folder: Path) -> list[int]:
    """Process ids of the living ranks whose plan lies below `folder`."""
    return [
        int(process.name)
        for process in Path("/proc").glob("[0-9]*")
        if is_rank(process) and plan_of(process).is_relative_to(folder)
    ]


def launchers_of(folder: Path, *, other_than: Container[str] = ()) -> list[int]:
    """Process ids of the launchers, and of the shells that become them, of runs below `folder` but of these cells."""
    return [
        int(process.name)
        for process in Path("/proc").glob("[0-9]*")
        if (cell := launched_cell(process, folder)) is not None and cell not in other_than
    ]


def launched_cell(process: Path, folder: Path) -> str | None:
    """The id of the cell that a launcher of the checkout `folder` runs. None: the process is no launcher."""
    try:
        command = (process / "cmdline").read_bytes().decode("utf-8", "replace").replace("\0", " ")
        if (
            "-m ckptbench.workflow train-cell" not in command
            or Path(os.readlink(process / "cwd")) != folder
        ):
            return None
    except OSError:
        return None
    return Path(command.split()[-1]).stem  # --log is the last option


def is_rank(process: Path) -> bool:
    """Whether it is a rank itself, not the mpiexec that started it; False for one that has ended meanwhile."""
    try:
        executable = Path(os.readlink(process / "exe")).name
    except OSError:
        return False
    return executable.startswith("python") and plan_of(process).name == "plan.json"


def plan_of(process: Path) -> Path:
    try:
        arguments = (process / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return Path()
    return Path(arguments[-2]) if "ckptbench.training.rank" in arguments else Path()


def wait_for(condition, what: str, seconds: float = 300) -> object:  # type: ignore[no-untyped-def]
    """The first true value of `condition()`; the bound is for a machine under load."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError(f"waited {seconds} s for {what}")

"""Warm environments: folders like those in `.environments` whose interpreters ask a server that has imported the framework.

The servers end with this process, or are those of `python -m tests.study.warm COMMAND`, whose sessions of tests share them.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ckptbench.matrix.registry import FRAMEWORKS, environment_of
from ckptbench.workflow.__main__ import VERBS

from .client import LOG, SERVER

ROOT = Path(__file__).resolve().parents[3]
COLD = ROOT / ".environments"
"""The real environments."""
HERE = Path(__file__).parent
ENVIRONMENTS, VENV = "environments", "venv"
SHARED = "CKPTBENCH_WARM"
"""The variable with the folder of the servers that several sessions of tests share."""
SNAKEMAKE = (
    "snakemake.cli", "sqlmodel", "docutils.core", "snakemake_executor_plugin_submitit", "ckptbench.config.failed", "ckptbench.config.outlook",
    "ckptbench.config.sources", "ckptbench.decide.failure_files", "ckptbench.report.figures", "ckptbench.inputs.environments.create",
)  # fmt: skip
"""What a plan of a study spends most of its time with before it begins."""
RULES = (
    *(f"ckptbench.workflow.{verb.replace('-', '_')}" for verb in VERBS if verb != "prepare-dataset"),
    *("ckptbench.report.figures.kit.style", "matplotlib.backends.backend_pdf", "scipy.special", "scipy.optimize"),
)  # fmt: skip
"""The same of the commands of its rules."""
RANK = ("ckptbench.training.loop", "ckptbench.run.control.joining")
"""What a rank imports beside its framework."""
DATA = ("ckptbench.workflow.prepare_dataset", "sklearn.datasets")


@functools.cache
def warm_environments() -> Path:
    """The folder, with the environments whose real one is ready. Each has imported all of its frameworks."""
    if shared := os.environ.get(SHARED):
        return Path(shared, ENVIRONMENTS)
    return lay_out_environments(_new_folder())


def lay_out_environments(folder: Path) -> Path:
    variables = {
        "PYTHONPATH": str(ROOT / "src"),
        "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
    }
    modules: dict[str, list[str]] = {}
    for name, framework in FRAMEWORKS.items():
        modules.setdefault(environment_of(name), []).append(framework.location.partition(":")[0])
    for name, own in modules.items():
        if (COLD / name / "ready.json").exists():
            _lay_out(folder / name, COLD / name, [*own, *RANK], variables)
    _lay_out(folder / "data", COLD / "data", DATA, variables)
    (folder / "wheels").symlink_to(COLD / "wheels")
    return folder


def warm_python(environment: str, modules: tuple[str, ...], variables: Mapping[str, str]) -> Path:
    """An interpreter that has imported the modules, and that was started with these variables."""
    folder = _new_folder() / environment
    _lay_out(folder, COLD / environment, modules, variables)
    return folder / "bin" / "python"


@functools.cache
def warm_snakemake() -> Path:
    """An interpreter that has imported Snakemake, for calls that no test interrupts: its jobs are not in the process group of the test.

    With the profile `local` it runs the commands of the rules, too (`server.py`).
    """
    if shared := os.environ.get(SHARED):
        return Path(shared, VENV, "bin", "python")
    return lay_out_snakemake(_new_folder() / VENV)


def lay_out_snakemake(folder: Path) -> Path:
    _lay_out(folder, Path(sys.executable).parents[1], (*SNAKEMAKE, *RULES), {})
    return folder / "bin" / "python"


def _new_folder() -> Path:
    # Not pytest's own folder: its path is too long for a Unix socket.
    folder = Path(tempfile.mkdtemp(prefix="ckptbench-warm-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _lay_out(warm: Path, cold: Path, modules: Sequence[str], variables: Mapping[str, str]) -> None:
    """Lay out one environment like the real one, `cold`, and start its server."""
    programs = warm / "bin"
    programs.mkdir(parents=True)
    if (ready := cold / "ready.json").exists():
        shutil.copy2(ready, warm)  # as old as the real one, so that the workflow keeps it
    interpreter = programs / "python"
    client = HERE.joinpath("client.py").read_text("utf-8")
    interpreter.write_text(f"#!{sys.executable} -ISE\n{client}", "utf-8")
    interpreter.chmod(0o755)
    for program in (cold / "bin").iterdir():
        if not program.name.startswith("python"):  # mpiexec, and what it looks for beside it
            (programs / program.name).symlink_to(program)
    with (warm / LOG).open("wb") as log, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(warm / SERVER))
        listener.listen(64)
        server = subprocess.Popen(
            [cold / "bin" / "python", "-P", HERE / "server.py", str(listener.fileno()), str(os.getpid()), *modules],
            env={**os.environ, **variables, "PYTHONUNBUFFERED": "1"},
            pass_fds=[listener.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )  # fmt: skip
    atexit.register(_end, server)


def _end(server: subprocess.Popen[bytes]) -> None:
    server.kill()
    server.wait()

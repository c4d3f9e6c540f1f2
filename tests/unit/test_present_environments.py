"""Environments that are there: what is found in them, what is refused, and the script that starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from ckptbench.common import versions
from ckptbench.common.errors import ConfigError, EnvironmentSetupError
from ckptbench.config.environments import find_environment
from ckptbench.config.environments import imports as of_environments
from ckptbench.config.expansion import expand
from ckptbench.config.reading import ConfigFiles
from ckptbench.config.study import load_config
from ckptbench.inputs.environments.create import changes
from ckptbench.inputs.environments.folder import environment_sha256, installed_sha256
from ckptbench.inputs.environments.lock_file import pinned_sha256
from ckptbench.inputs.environments.present import PresentEnvironment
from ckptbench.matrix.registry import environments

ROOT = Path(__file__).resolve().parents[2]
BASE = Path(sys.base_prefix) / "bin" / "python3"
"""A Python without packages."""
ALWAYS = ["numpy", "xxhash"]


def script(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return path


def found(name: str, content: str, modules: list[str] = ALWAYS) -> PresentEnvironment:
    """That of a config with this content of `environments`."""
    text = yaml.safe_load(f"environments: {content}")
    spec = load_config(text).environments[name]
    return find_environment(name, spec, modules, ConfigFiles(text, [Path("mine.yaml")]))


def refused(content: str, name: str = "pytorch", modules: list[str] = ALWAYS) -> str:
    with pytest.raises(ConfigError) as error:
        found(name, content, modules)
    told = str(error.value)
    assert len(told.splitlines()) == 1
    return told


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('echo "Python 3.9.2"', "is Python 3.9.2, and ranks need 3.11 or newer: name another one"),
        ("echo hello", "is not a Python (it printed nothing): name the program that starts it"),
        ("echo broken >&2; exit 1", "is not a Python (broken): name the program"),
        (f'exec env -i {BASE} "$@"', f"cannot import ckptbench from {ROOT}/src (ModuleNotFoundError: No module named 'ckptbench'): a "),
    ],
)  # fmt: skip
def test_what_starts_no_python_that_ranks_run_in_is_refused(
    line: str, words: str, tmp_path: Path
) -> None:
    path = script(tmp_path / "python", line)
    told = refused(f"{{pytorch: {{python: {path}}}}}")
    assert told.startswith("mine.yaml: environments.pytorch is {'python': ")
    assert f"{path} {words}" in told


def test_a_path_that_is_no_program_is_refused_with_its_place(tmp_path: Path) -> None:
    (plain := tmp_path / "plain").touch()
    told = refused(f"{{pytorch: {{python: {tmp_path}}}}}")
    assert f"it is a folder: name the Python in it, as in {tmp_path}/bin/python" in told
    assert "there is no such file /no/such: correct" in refused("{pytorch: {python: /no/such}}")
    assert "no program no-such is on PATH: load the module" in refused("{jax: {python: no-such}}", "jax")  # fmt: skip
    assert "(Permission denied): name a program" in refused(f"{{pytorch: {{python: {plain}}}}}")
    assert "no-such does not start (No such file" in refused("{pytorch: {command: no-such exec}}")
    assert "No closing quotation: close the quotes" in refused("{pytorch: {command: 'a \"b'}}")


def test_a_package_that_is_missing_is_named_with_how_to_get_it(tmp_path: Path) -> None:
    path = script(tmp_path / "python", f'exec {sys.executable} "$@"')
    entry = f"{{jax: {{command: env A=1 {path}}}}}"
    assert found("jax", entry).versions["numpy"]
    own = refused(entry, "jax", [*ALWAYS, "orbax"])
    assert "has no orbax, as it is the Python of Snakemake itself" in own
    other = replace(found("jax", entry), executable="")
    assert other._lacks(["orbax"], "/inside/python") == (
        f"env A=1 {path} has no orbax, which a study imports: env A=1 {path} -m pip install orbax-checkpoint; or, where it cannot be "
        f"changed, env A=1 {path} -m pip install --no-deps --target FOLDER orbax-checkpoint, and start Snakemake with PYTHONPATH=FOLDER"
    )
    with pytest.raises(
        EnvironmentSetupError, match=r"no mpiexec is beside .*, nor on PATH: load the MPI"
    ):
        other._read(
            f'Python 3.12.1\n{versions.FOUND}{{"missing": [], "executable": "", "versions": {{}}}}',
            "",
            ["mpi4py"],
        )
    assert "has no jax, so it is no environment of jax" in other._lacks(["jax"], "/inside/python")


def test_what_no_shell_installs_is_found_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the PYTHONPATH with which Snakemake starts. `make` keeps it under another name."""
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "thing_of_ours.py").touch()
    entry = f"{{pytorch: {{python: {sys.executable}}}}}"
    assert "has no thing_of_ours" in refused(entry, modules=["thing_of_ours"])
    for name in ("PYTHONPATH", "CKPTBENCH_PYTHONPATH"):
        with monkeypatch.context() as shell:
            shell.setenv(name, str(tmp_path / "beside"))
            assert found("pytorch", entry, ["thing_of_ours"]).executable == sys.executable


def test_its_script_starts_it_as_the_shell_of_the_user_does(tmp_path: Path) -> None:
    """But ranks' own PYTHONPATH comes first, and what rules put before PATH is gone. Within a container it is entered no more."""
    asked = "import os, sys; print(*(os.environ.get(name) for name in ('PATH', 'PYTHONPATH', 'ENTERED')), *sys.argv[1:])"
    entry = script(tmp_path / "enter it", 'ENTERED=x$ENTERED exec "$@"')
    environment = PresentEnvironment(
        "pytorch", (str(entry), sys.executable), is_entry=True, site_path="/our own", executable=sys.executable
    )  # fmt: skip
    environment.write(tmp_path / "folder")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    python = tmp_path / "folder" / "bin" / "python"
    outer = subprocess.run([python, "-c", asked, "a b"], env={"PATH": path, "PYTHONPATH": "/ranks"}, capture_output=True, text=True, check=True)  # fmt: skip
    assert outer.stdout.strip() == f"{os.environ['PATH']} /ranks:/our own x a b"
    again = f"import subprocess; subprocess.run([{str(python)!r}, '-c', {asked!r}])"
    inner = subprocess.run([python, "-c", again], env={"PATH": path}, capture_output=True, text=True, check=True)  # fmt: skip
    assert inner.stdout.strip() == f"{os.environ['PATH']} /our own x"


def test_another_version_of_a_package_is_another_environment(tmp_path: Path) -> None:
    before = PresentEnvironment("pytorch", ("python",), versions={"torch": "2.13.0", "NVIDIA driver": "580.1"})  # fmt: skip
    before.write(tmp_path)
    assert PresentEnvironment.read(tmp_path) == before
    assert pinned_sha256(tmp_path / "pytorch-present.txt") == before.described()["sha256"]
    assert installed_sha256(tmp_path) == environment_sha256(before.described())
    assert not changes(tmp_path, before.described())
    elsewhere = replace(before, command=("/another/place/python",))
    assert not changes(tmp_path, elsewhere.described())
    for name in before.versions:
        other = replace(before, versions={**before.versions, name: "9"})
        assert changes(tmp_path, other.described()) == ["sha256"]
        assert environment_sha256(other.described()) != installed_sha256(tmp_path)


def test_cuda_nccl_and_the_driver_are_named_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (torch := tmp_path / "torch").mkdir()
    (torch / "__init__.py").write_text("raise ImportError('nobody imports it')\n")
    (torch / "version.py").write_text("cuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n")
    driver = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build\nGCC version: 12.2.0\n"
    (tmp_path / "version").write_text(driver)
    monkeypatch.setattr(versions, "DRIVER", tmp_path / "version")
    source = tmp_path / "nccl.c"
    source.write_text("int ncclGetVersion(int *version) { *version = 22703; return 0; }\n")
    (library := tmp_path / "nvidia/nccl/lib/libnccl.so.2").parent.mkdir(parents=True)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    named = versions.platform_versions()
    assert (named["CUDA"], named["NCCL"], named["NVIDIA driver"]) == ("12.8", "2.27.3", "570.86.10")


def test_ranks_need_the_packages_of_what_the_matrix_names() -> None:
    def imports(matrix: str) -> set[str]:
        cells = expand(load_config({"matrix": {"ranks": 1, **yaml.safe_load(matrix)}, "repeats": 1}))  # fmt: skip
        return {module for cell in cells for module in cell.imports}

    assert imports("{framework: pytorch}") == {*ALWAYS, "torch"}
    assert imports("{framework: pytorch, strategy: [async, deepfreeze, dcp]}") == {*ALWAYS, "torch"}
    assert imports("{framework: pytorch, format: [hdf5, safetensors]}") == {*ALWAYS, "torch", "h5py", "safetensors"}  # fmt: skip
    assert imports("{framework: jax, format: npz}") == {*ALWAYS, "jax", "optax"}
    assert "orbax" in imports("{framework: jax}")
    digits = expand(load_config({"matrix": {"framework": "pytorch"}}))
    assert of_environments(digits) == {"data": ["numpy", "sklearn"], "pytorch": [*ALWAYS, "torch"]}


def test_every_lock_is_of_an_environment_that_a_config_may_name() -> None:
    locks = {path.stem.removesuffix("-cuda") for path in (ROOT / "envs").glob("*.txt")}
    ours = {"main", "dev", "build-constraints", "trainers", "trainers_more"}
    assert locks - ours == {*environments()}

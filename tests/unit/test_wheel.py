"""The wheel has all that the command needs without a clone."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BESIDE = sorted(
    path.parent
    for path in [*ROOT.glob("plugins/*/pyproject.toml"), ROOT / "probe" / "pyproject.toml"]
)
"""The distributions beside the main one."""
PACKAGE = ROOT / "src" / "ckptbench"
RATES = ROOT / "config" / "failures"
CASE = "--gpus 256 --mtbf 14h --step 2.5s --blocking 60s --async 3s+90s --restart 8min --now 2h"
BLOCKED = """
import sys
sys.modules.update(dict.fromkeys({blocked!r}))
from ckptbench.cli.verbs import run
sys.exit(run({arguments!r}))
"""
"""A module that is None cannot be imported."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    return zipfile.ZipFile(build(ROOT, "wheel", folder))


def build(project: Path, target: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory"]
    subprocess.run([*command, str(folder)], cwd=project, check=True, capture_output=True)
    (built,) = folder.iterdir()
    return built


def test_the_wheel_has_the_command(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    entry_points = configparser.ConfigParser()
    entry_points.read_string(wheel.read(name).decode())
    assert dict(entry_points["console_scripts"]) == {"ckptbench": "ckptbench.cli.main:main"}


def test_the_wheel_has_every_file_of_the_source(wheel: zipfile.ZipFile) -> None:
    """Scripts, styles, pages and data too, which are read when the command runs."""
    source = {
        f"ckptbench/{path.relative_to(PACKAGE)}"
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    rates = {f"ckptbench/decide/failures/{path.name}" for path in RATES.glob("*.yaml")}
    expected = source | rates
    assert expected <= set(wheel.namelist())
    endings = {Path(path).suffix for path in expected}
    assert {".py", ".js", ".css", ".html", ".json", ".yaml", ".txt"} <= endings


@pytest.mark.parametrize("project", BESIDE, ids=lambda project: project.name)
def test_what_is_published_beside_it_has_its_license_and_its_types(project: Path, tmp_path: Path) -> None:  # fmt: skip
    """The wheel is made of the source distribution, as by whoever packages it: there a link would lead nowhere."""
    with tarfile.open(build(project, "sdist", tmp_path / "sdist")) as source:
        source.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        source.extractall(tmp_path / "source")
    (unpacked,) = (tmp_path / "source").iterdir()
    made = zipfile.ZipFile(build(unpacked, "wheel", tmp_path / "wheel"))
    (license_file,) = (name for name in made.namelist() if name.endswith("/licenses/LICENSE"))
    assert made.read(license_file) == (ROOT / "LICENSE").read_bytes()
    assert any(name.endswith("/py.typed") for name in made.namelist())


def test_the_extra_is_declared(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith("METADATA"))
    metadata = wheel.read(name).decode()
    assert "Provides-Extra: decide" in metadata
    for package in ("pandas", "click", "rich"):
        assert f"Requires-Dist: {package}; extra == 'decide'" in metadata


def asked_for() -> set[str]:
    """The distributions that `ckptbench[decide]` brings along, on any platform."""
    found = {"ckptbench"}
    new = [line for line in requires("ckptbench") or () if "extra ==" not in line or "decide" in line]  # fmt: skip
    while new:
        name = normal(re.split(r"[^\w.-]", new.pop(), maxsplit=1)[0])
        if name not in found:
            found.add(name)
            new += needed_by(name)
    return found


def needed_by(distribution: str) -> list[str]:
    try:
        return [line for line in requires(distribution) or () if "extra ==" not in line]
    except PackageNotFoundError:  # of another platform
        return []


def normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


@pytest.mark.parametrize(
    "arguments",
    [
        f"decide {CASE}",
        f"decide {CASE} --json",
        f"decide --costs {ROOT}/config/costs-example.yaml --rate llama3",
        "page page.html",
    ],
    ids=["options", "json", "costs", "page"],
)
def test_the_command_imports_only_what_the_wheel_asks_for(arguments: str, tmp_path: Path) -> None:  # fmt: skip
    asked = asked_for()
    blocked = [
        module
        for module, owners in packages_distributions().items()
        if not asked & {normal(owner) for owner in owners}
    ]
    assert {"matplotlib", "snakemake"} <= set(blocked)
    program = BLOCKED.format(blocked=blocked, arguments=arguments.split())
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr

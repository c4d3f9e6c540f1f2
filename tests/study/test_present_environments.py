"""A study in environments that are there: by a path, as `python` on PATH, and one that nobody can write behind the entry of a container."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from checkout import COLD, ROOT, Checkout

from ckptbench.common.files import read_json
from ckptbench.config.expansion import expand
from ckptbench.config.study import load_config

pytestmark = pytest.mark.frameworks("chainer", "jax", "pytorch")

ENTER = """#!/bin/sh
[ -z "$ENTERED" ] || { echo "this container has no program to enter it once more" >&2; exit 1; }
export ENTERED=yes
mount --bind {venv} {venv} && mount -o remount,bind,ro {venv} && ! touch {venv}/written 2>/dev/null && exec "$@"
"""


def venv_onto(name: str, folder: Path) -> Path:
    """A venv that has the packages of the environment of this name."""
    made = COLD / name
    command = [made / "bin/python", "-m", "venv", "--without-pip", folder]
    subprocess.run(command, check=True)
    (packages,) = made.glob("lib/python*/site-packages")
    (own,) = folder.glob("lib/python*/site-packages")
    (own / "ours.pth").write_text(f"{packages}\n")
    return folder


@pytest.fixture(scope="module")
def venvs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("venvs")
    return {name: venv_onto(name, folder / name) for name in ("jax", "pytorch")}


@pytest.fixture(scope="module")
def done(venvs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """One run in each: over MPI, and by torchrun in the container, where a rank is killed."""
    folder = tmp_path_factory.mktemp("present") / "checkout"
    (none := folder.with_name("none")).mkdir()
    (none / "data").symlink_to(COLD / "data")
    checkout = Checkout.make(folder, environments=none)
    (enter := folder / "enter").write_text(ENTER.replace("{venv}", str(venvs["pytorch"])))
    enter.chmod(0o755)
    content = yaml.safe_load((ROOT / "config/studies/tiny.yaml").read_text())
    content["matrix"] |= {"framework": ["chainer", "jax"], "ranks": 2, "interval": 1}
    struck = {"framework": "pytorch", "recovery": "torchrun", "faults": {"listed": {"name": "one"}}}
    entered = f"unshare --map-root-user --mount {enter} {venvs['pytorch']}/bin/python"
    content |= {
        "repeats": 1,
        "include": [struck],
        "failures": {"one": [{"step": 5, "rank": 1}]},
        "environments": {
            "chainer": {"python": f"{COLD}/chainer/bin/python"},
            "jax": "present",
            "pytorch": {"command": entered},
        },
    }
    (folder / "mine.yaml").write_text(yaml.safe_dump(content))
    before = files(venvs)
    cells = expand(load_config(content))
    asked = [cell.id for cell in cells if cell.is_struck or not (cell.is_baseline or cell.framework == "pytorch")]  # fmt: skip
    assert len(asked) == 3
    seals = [f"results/runs/{cell_id}/seal.json" for cell_id in asked]
    finished = started(checkout, venvs, *seals)
    assert finished.returncode == 0, finished.stdout
    assert files(venvs) == before
    return checkout


def files(venvs: dict[str, Path]) -> set[Path]:
    return {path for folder in venvs.values() for path in folder.rglob("*")}


def started(
    checkout: Checkout, venvs: dict[str, Path] | None, *options: str
) -> subprocess.CompletedProcess[str]:
    """The workflow, with JAX's venv first on PATH as if it were active; None: nothing was activated."""
    own = f"{venvs['jax']}/bin{os.pathsep}" if venvs else ""
    return subprocess.run(
        checkout.command(*options, study="mine.yaml"),
        cwd=checkout.folder,
        env={**os.environ, "PATH": f"{own}{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def test_runs_end_well_and_say_what_they_ran_in(done: Checkout) -> None:
    manifests = [read_json(seal.with_name("manifest.json")) for seal in done.folder.glob("results/runs/*/seal.json")]  # fmt: skip
    assert {each["lock"] for each in manifests} == {f"{name}-present.txt" for name in ("chainer", "jax", "pytorch")}  # fmt: skip
    for each in manifests:
        assert each["status"] == "complete"
        assert len(each["strikes"]) == len(each["failures"]) == (each["lock"] == "pytorch-present.txt")  # fmt: skip
        lock = done.folder / "results/environments" / each["lock"].removesuffix("-present.txt") / each["lock"]  # fmt: skip
        listed = dict(line.split("==") for line in lock.read_text().splitlines())
        assert listed.items() <= each["versions"].items()
        assert {"Python", "numpy", "xxhash"} <= listed.keys()
    assert not [path for path in done.folder.glob(".environments/*") if path.name != "data"]


def test_another_package_makes_the_runs_of_its_environment_again_and_no_others(
    done: Checkout, venvs: dict[str, Path]
) -> None:
    seals = [str(path.relative_to(done.folder)) for path in done.folder.glob("results/runs/*/seal.json")]  # fmt: skip
    assert "Nothing to be done" in started(done, venvs, "-n", *seals).stdout
    (packages,) = venvs["jax"].glob("lib/python*/site-packages")
    (ours := packages / "ours-1.dist-info").mkdir()
    (ours / "METADATA").write_text("Metadata-Version: 2.1\nName: ours\nVersion: 1\n")
    planned = started(done, venvs, "-n", *seals).stdout
    assert re.search(r"^train_cell +1$", planned, re.MULTILINE), planned
    assert re.search(r"Job \d+: train jax-", planned)
    (ours / "METADATA").unlink()
    ours.rmdir()


def test_runs_stay_where_the_environment_is_away_and_no_other_starts(
    done: Checkout, venvs: dict[str, Path]
) -> None:
    mine = done.folder / "mine.yaml"
    content = yaml.safe_load(mine.read_text())
    content["environments"]["jax"] = {"python": f"{venvs['jax']}/away"}
    mine.write_text(yaml.safe_dump(content))
    (seal,) = (str(path.relative_to(done.folder)) for path in done.folder.glob("results/runs/jax-*/seal.json"))  # fmt: skip
    words = f"there is no such file {venvs['jax']}/away: correct the path"
    planned = started(done, None, "-n", seal).stdout
    assert "Nothing to be done" in planned
    assert words in planned
    again = started(done, None, seal, "--forcerun", "train_cell")
    assert again.returncode != 0
    assert words in again.stdout
    assert "train jax-" not in again.stdout

"""What environments and datasets are made from: told by their own records, on any machine."""

from __future__ import annotations

import json
from pathlib import Path

from ckptbench.data import sources
from ckptbench.data.sources.cifar10 import Cifar10
from ckptbench.data.sources.nt3 import Nt3
from ckptbench.data.sources.synthetic import Synthetic
from ckptbench.environments import ready
from ckptbench.environments.folder import environment_sha256
from ckptbench.environments.lock_file import pinned, pinned_sha256
from ckptbench.machine.files import file_sha256, write_json

TINY = {"height": 2, "width": 2, "channels": 1, "classes": 2, "train_samples": 4, "test_samples": 2}


def test_hashes_in_a_lock_change_no_environment(tmp_path: Path) -> None:
    plain, hashed = tmp_path / "plain.txt", tmp_path / "hashed.txt"
    plain.write_text("numpy==2.0\nuvloop==1 ; sys_platform != 'win32'\n")
    hashed.write_text(
        "numpy==2.0 \\\n    --hash=sha256:12 \\\n    --hash=sha256:34\n"
        "uvloop==1 ; sys_platform != 'win32' \\\n    --hash=sha256:56\n"
    )
    assert pinned(hashed) == plain.read_text()
    # As locks without hashes were recorded before.
    assert pinned_sha256(hashed) == file_sha256(plain)


def test_what_makes_an_environment_another_one_is_its_packages_and_not_how_they_were_built(
    tmp_path: Path,
) -> None:
    lock, constraints = tmp_path / "mine.txt", tmp_path / "constraints.txt"
    lock.write_text("numpy==2\n")
    constraints.write_text("")
    before = ready.described(lock, constraints)
    constraints.write_text("setuptools==1\n")
    now = ready.described(lock, constraints)
    assert now != before
    assert environment_sha256(now) == environment_sha256(before)
    lock.write_text("numpy==2\nhorovod==0.28.1\n")
    now = ready.described(lock, constraints)
    assert now.keys() - before.keys() == {"recipe"}
    assert environment_sha256(now) != environment_sha256(before)


def test_a_dataset_is_outdated_by_its_settings_and_its_code(tmp_path: Path) -> None:
    sources.prepare("synthetic", tmp_path, TINY)
    assert sources.changes(tmp_path, Synthetic(**TINY)) == []
    assert sources.changes(tmp_path, Synthetic(**{**TINY, "seed": 3})) == ["seed"]
    description = json.loads((tmp_path / "dataset.json").read_text())
    description["made_from"]["source_sha256"] = "older"
    write_json(tmp_path / "dataset.json", description)
    assert sources.changes(tmp_path, Synthetic(**TINY)) == ["source_sha256"]
    del description["made_from"]
    write_json(tmp_path / "dataset.json", description)
    assert sources.changes(tmp_path, Synthetic(**TINY)) == ["dataset.json"]


def test_a_dataset_is_outdated_by_the_content_of_its_files_and_not_by_their_place(
    tmp_path: Path,
) -> None:
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        for name in ("nt_train2.csv", "nt_test2.csv"):
            (tmp_path / place / name).write_text("1,2")
    here, there = (Nt3(folder=str(tmp_path / place)) for place in ("here", "there"))
    write_json(tmp_path / "dataset.json", {"made_from": sources.made_from(here)})
    assert sources.changes(tmp_path, there) == []
    assert sources.changes(tmp_path, Nt3()) == [], "the config of a copy names none"
    (tmp_path / "there/nt_test2.csv").write_text("1,3")
    assert sources.changes(tmp_path, there) == ["files"]
    assert Cifar10(archive="/elsewhere.tar.gz").identity() == Cifar10().identity()

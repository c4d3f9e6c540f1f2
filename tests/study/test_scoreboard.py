"""The study of trainers through the workflow: two trainers, one done right and one wrong, and one that cannot start."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import yaml
from checkout import Checkout
from tiny_trainers import add, found


def test_two_trainers_under_three_checks_and_a_third_by_one_folder(tmp_path: Path) -> None:
    checkout, trainers = Checkout.make(tmp_path / "checkout"), tmp_path / "trainers"
    add(trainers, "right")
    add(trainers, "forgets")
    config = {
        "environments": {"trainers": {"python": sys.executable}},
        "trainers": {"folder": str(trainers), "checks": ["resume_within", "saves", "cost"]},
    }
    (checkout.folder / "mine.yaml").write_text(yaml.safe_dump(config))
    done = checkout.run(study="mine.yaml")
    assert done.returncode == 0, done.stdout
    assert found(checkout.folder) == {
        ("right", "resume_within"): "yes", ("forgets", "resume_within"): "no",
        **{(row, column): verdict for row in ("right", "forgets") for column, verdict in (("saves", "cannot tell"), ("pointer", "does not apply"), ("cost", "measured"))},
    }  # fmt: skip
    results = checkout.folder / "results"
    assert (results / "trainers.png").read_bytes().startswith(b"\x89PNG")
    assert not (results / "study.json").exists()
    answers = {path: path.stat().st_mtime_ns for path in (results / "trainers").glob("*/*.json")}

    add(trainers, "crashes")
    (results / "trainers" / "right" / "cost.json").unlink()
    config["trainers"]["checks"] = ["resume_within", "cost"]
    (checkout.folder / "mine.yaml").write_text(yaml.safe_dump(config))
    done = checkout.run(study="mine.yaml")
    assert done.returncode == 0, done.stdout
    assert found(checkout.folder)["crashes", "resume_within"] == "cannot tell"
    assert found(checkout.folder)["right", "cost"] == "measured"
    made = [path for path, at in answers.items() if path.stat().st_mtime_ns != at]
    assert [path.parent.name + "/" + path.name for path in made] == ["right/cost.json"]

    shutil.rmtree(trainers)
    done = checkout.run("-n", study="mine.yaml")
    assert "docs/trainers.md says how to add a trainer" in done.stdout

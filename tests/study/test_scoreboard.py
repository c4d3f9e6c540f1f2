"""The study of trainers through the workflow: two trainers, one done right and one wrong, and one that cannot start."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import yaml
from checkout import Checkout

from ckptbench.trainers import table

LOOP = """
import json, os, sys
from ckptbench_probe import session
folder, how = sys.argv[1:]
if how == "crashes":
    sys.exit("no data")
os.makedirs(folder, exist_ok=True)
newest = os.path.join(folder, "newest.json")
done, drawn = json.load(open(newest)) if os.path.exists(newest) else (0, 0)
if how == "forgets":
    drawn = 0
with session() as s:
    while done < 36:
        done, drawn = done + 1, drawn + 1
        s.step(state={"weight": float(drawn)}, update=done)
        if done % 4 == 0:
            with s.checkpoint(newest):
                with open(newest + ".new", "w") as file:
                    json.dump([done, drawn], file)
                os.replace(newest + ".new", newest)
"""


def add(folder: Path, how: str) -> None:
    (folder / how).mkdir(parents=True)
    (folder / how / "train.py").write_text(LOOP)
    content = {"title": how, "environment": "trainers", "packages": ["numpy"], "epoch": 12, "command": f"python {{script}} {{folder}} {how}"}  # fmt: skip
    (folder / how / "trainer.yaml").write_text(yaml.safe_dump(content))


def found(checkout: Checkout) -> dict[tuple[str, str], str]:
    lines = table.read(checkout.folder / "results" / "trainers.csv")
    return {(line.row, line.column): line.verdict for line in lines}


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
    assert found(checkout) == {
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
    assert found(checkout)["crashes", "resume_within"] == "cannot tell"
    assert found(checkout)["right", "cost"] == "measured"
    made = [path for path, at in answers.items() if path.stat().st_mtime_ns != at]
    assert [path.parent.name + "/" + path.name for path in made] == ["right/cost.json"]

    shutil.rmtree(trainers)
    done = checkout.run("-n", study="mine.yaml")
    assert "docs/trainers.md says how to add a trainer" in done.stdout

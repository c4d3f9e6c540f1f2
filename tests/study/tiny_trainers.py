"""Trainers for the study of trainers that need no framework: one done right, one that forgets, one that crashes."""

from __future__ import annotations

from pathlib import Path

import yaml

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


def found(checkout: Path) -> dict[tuple[str, str], str]:
    """The verdicts of the study that was made there."""
    lines = table.read(checkout / "results" / "trainers.csv")
    return {(line.row, line.column): line.verdict for line in lines}

"""What the project's other files say: the rooms of the source, the study files, the published failure rates."""

from __future__ import annotations

import configparser
from itertools import takewhile
from pathlib import Path

from ckptbench.decide.failure_file import FailureFile
from ckptbench.decide.failure_files import read_failure_file
from ckptbench.decide.rates import FailureRate, read_rates
from ckptbench.report.answer.quantities import amount, plain
from scripts.pages.docstring import docstring

ROOT = Path(__file__).resolve().parents[2]


def rooms() -> str:
    """The map of the source, from the floors that the import linter checks."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / ".importlinter")
    floors = settings["importlinter:contract:rooms"]["layers"].split("\n")[1:]
    rows = ["| floor | room | purpose |", "| --- | --- | --- |"]
    for number, floor in zip(range(len(floors), 0, -1), floors, strict=True):
        for room in floor.split(" | "):
            rows.append(f"| {number} | `{room}` | {docstring(f'ckptbench.{room}')} |")
    return "\n".join(rows) + "\n"


def studies() -> str:
    """Each study file, with the first paragraph of the comment that it begins with."""
    lines = []
    for path in sorted((ROOT / "config" / "studies").glob("*.yaml")):
        begins = takewhile(lambda line: line.startswith("# "), path.read_text("utf-8").splitlines())
        lines.append(f"- `{path.name}`: {' '.join(line.removeprefix('# ') for line in begins)}\n")
    return "".join(lines)


def rates() -> str:
    """The published failure rates: what was counted, and the mean between two failures with its interval."""
    folder = ROOT / "config" / "failures"
    rows = [
        "| file | counts | published | GPU-hours between two |",
        "| --- | --- | --- | --- |",
    ]
    for rate in read_rates(folder):
        file, _ = read_failure_file(folder / f"{rate.name}.yaml")
        mean = amount(rate.mean_gpu_hours, lo=rate.seen.lo, hi=rate.seen.hi)
        rows.append(f"| `{rate.name}` | {file.counts} | {_published(rate, file)} | {mean} |")
    return "\n".join(rows) + "\n"


def _published(rate: FailureRate, file: FailureFile) -> str:
    about = "about " if file.approximate else ""
    if file.failures is not None and file.days is not None:
        return f"{about}{file.failures:,} in {plain(file.days)} days on {file.gpus:,} GPUs"
    if file.mean_hours is not None:
        return f"{about}a mean of {plain(file.mean_hours)} hours at {file.gpus:,} GPUs"
    return f"{about}the mean"


PARTS = {"rooms": rooms, "studies": studies, "rates": rates}

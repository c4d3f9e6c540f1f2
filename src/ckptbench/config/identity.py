"""Of which config results are: a digest of all that changes them, and its settings in words. It lies beside the tables.

Snakemake knows it from its record in `.snakemake`. Results outlive that, and a report does not ask it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING

from ckptbench.common.errors import RunFolderError
from ckptbench.common.files import read_json, write_json

if TYPE_CHECKING:  # an edit of these does not concern the verbs that write marks
    from ckptbench.config.study import StudyConfig
    from ckptbench.matrix.cell import Cell

LETTERS = 190
"""Of the settings in words: two lines of an answer."""
OF_RUNS, OF_DECISION = "config", "decision"
"""The kinds of marks: of what was measured, and of what was decided from it."""


def digest(*parts: object) -> str:
    """Eight letters that differ where the parts do."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:8]


def digest_of_runs(config: StudyConfig, cells: Iterable[Cell]) -> str:
    """Of all that the tables of the runs depend on, in whatever order they run."""
    listed = list(cells)
    datasets = {cell.dataset for cell in listed}
    used = {cell.environment.removesuffix("-cuda") for cell in listed}
    present = sorted(used & config.environments.keys())  # a part only where there are some
    return digest(
        sorted(json.dumps(cell.to_json(), sort_keys=True) for cell in listed),
        dataclasses.asdict(config.training_of_cells()),
        {name: getattr(config.datasets, name).settings() for name in datasets},
        {cell.id: [failure.to_json() for failure in config.failures_of(cell)] for cell in listed},
        *filter(None, [present]),
    )


def in_words(
    mark: str, config: StudyConfig, files: Sequence[Path], runs: int, left_out: str = ""
) -> str:
    """One sentence: the digest, the files, the number of runs, and every setting of runs that is not the default. In a second line what was left out."""
    own, usual = config.model_dump(mode="json"), type(config)().model_dump(mode="json")
    settings = "; ".join(
        f"{name} {_shown(value, name)}"
        for section in ("matrix", "training")
        for name, value in own[section].items()
        if value != usual[section][name]
    )
    named = " and ".join(map(str, files))
    words = shorten(
        f"Config {mark} ({named}): {runs} runs; {settings}", LETTERS, placeholder=" ..."
    )
    return f"{words}\n{left_out}" if left_out else words


def _shown(value: object, name: str) -> str:
    if isinstance(value, list):
        return ", ".join(_shown(each, name) for each in value)
    text = str(value)
    if name == "interval":  # as a config writes it
        return f"{text[1:]} steps" if text.startswith("s") else text.removeprefix("e")
    return text


def mark_path(tables: Path, kind: str, mark: str) -> Path:
    """The file that says of which config the tables in the folder are. Its name is enough for a workflow to miss it."""
    return tables / f"{kind}-{mark}.json"


def _name(words: str) -> str:
    """`config 3f2a91c7 (config/config.yaml)`, of the sentence that begins with it."""
    return words.partition(": ")[0].replace("Config", "config", 1)


@contextmanager
def marking(path: Path | None, words: str = "") -> Iterator[None]:
    """Write the mark when the tables of the block are written. None: nobody asked for one. Those of other configs go before."""
    if path is None:
        yield
        return
    kind, _, _ = path.name.partition("-")
    for other in path.parent.glob(f"{kind}-*.json"):
        other.unlink()
    yield
    write_json(path, {"words": words})


def config_of(tables: Path) -> str:
    """In words, the config of the runs whose tables are in the folder. Empty where nothing says it, as for a user's own costs."""
    for path in sorted(tables.glob(f"{OF_RUNS}-*.json")):
        try:
            return str(read_json(path)["words"])
        except (RunFolderError, KeyError):
            continue
    return ""


def refusal(tables: Path, wanted: Mapping[str, str], words: str, page: Path) -> str | None:
    """Why a report of a config, which begins with `page`, cannot be made of what lies there. None: it can.

    `wanted` has the digest of each kind of mark that the report needs, `words` say which config it is.
    """
    if not page.exists():
        return f"{page} is missing, with which a report begins: start the workflow, and ask for the report when it has ended"
    for kind, mark in wanted.items():
        if mark_path(tables, kind, mark).exists():
            continue
        others = [path.stem for path in sorted(tables.glob(f"{kind}-*.json"))]
        theirs = _name(config_of(tables)) or "another config"
        found = f"of {theirs}" if others else "unfinished, or of an earlier version"
        return f"{tables} is {found}, and the report is to be of {_name(words)}: start the workflow with this config first, or name the other"
    return None

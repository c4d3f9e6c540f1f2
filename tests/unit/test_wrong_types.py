"""A sealed run folder with a wrong type, a missing field or a wrong array is read, or refused with the run, the file and the field."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from elastic_runs import shrunken
from run_folders import FakeRun, Kill, cell

from ckptbench.analysis.collect.runs import collect
from ckptbench.common.errors import RunFolderError
from ckptbench.common.files import read_json, write_json
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.runs.layout import MANIFEST, final_path
from ckptbench.runs.seal import seal

WRONG: list[object] = ["64", -5, True, None, [], math.nan, 10**30, [[1]], {"a": []}]
GONE = object()
PROOF: dict[str, Any] = {"ranks": 2, "deterministic": True}


def write_killed(runs: Path) -> list[Path]:
    """A run that was killed, and its reference: both record a proof."""
    common: dict[str, Any] = {"steps_per_epoch": 3, "proof": True, "removal_s": 0.1, "hold_s": {"update": 0.1}}  # fmt: skip
    killed = cell("s2", faults=PluginSpec("killed_between"), **PROOF)
    return [
        FakeRun(cell=killed, kills=(Kill(1, 3),), **common).write(runs),
        FakeRun(cell=killed.reference, **common).write(runs),
    ]


def write_struck(runs: Path) -> list[Path]:
    """A run that went on with fewer ranks."""
    return [shrunken(runs).end()]


def some_wrong(number: int) -> list[object]:
    """Three of the wrong values, others for each place, and none at all: every value meets many places."""
    return [*(WRONG[(number + offset) % len(WRONG)] for offset in (0, 2, 5)), GONE]


def places(content: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where each value lies; of a list its first element alone."""
    if at:
        yield at
    inner = content.items() if isinstance(content, dict) else enumerate(content[:1]) if isinstance(content, list) else ()  # fmt: skip
    for key, each in inner:
        yield from places(each, (*at, key))


def changed(content: Any, at: tuple[Any, ...], value: object) -> Any:
    copy = dict(content) if isinstance(content, dict) else list(content)
    if len(at) == 1:
        if value is GONE:
            del copy[at[0]]
        else:
            copy[at[0]] = value
    else:
        copy[at[0]] = changed(content[at[0]], at[1:], value)
    return copy


def read(folders: list[Path], changed_file: Path, ranks: int) -> RunFolderError | None:
    """The error of reading, which names the run and is one line; None if it was read."""
    folder = changed_file.parent
    seal(folder, ranks)
    refused = None
    try:
        collect(folders)
    except RunFolderError as error:
        refused = error
    assert refused is None or (str(folder) in str(refused) and "\n" not in str(refused))
    return refused


def mutations(lines: list[Any]) -> Iterator[tuple[int, Any]]:
    """A changed line, with its index: each field of the first line of each event, in every wrong way."""
    seen: set[str] = set()
    for index, line in enumerate(lines):
        if line["event"] in seen:
            continue
        seen.add(line["event"])
        for number, at in enumerate(places(line)):
            for wrong in some_wrong(number):
                yield index, changed(line, at, wrong)


@pytest.mark.parametrize(
    ("write", "journal"),
    [
        (write_killed, "trace-0.jsonl"),
        (write_killed, "trace-1.jsonl"),
        (write_struck, "trace-1.jsonl"),
        (write_struck, "launcher.jsonl"),
        (write_struck, "strikes-0.jsonl"),
    ],
)
def test_every_field_of_every_event_is_read_or_refused(
    tmp_path: Path, write: Callable[[Path], list[Path]], journal: str
) -> None:
    folders = write(tmp_path)
    ranks = read_json(folders[0] / MANIFEST)["cell"]["ranks"]
    path = folders[0] / journal
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert read(folders, path, ranks) is None
    refused = 0
    for index, line in mutations(lines):
        text = [json.dumps(line if place == index else each) for place, each in enumerate(lines)]
        path.write_text("\n".join(text) + "\n")
        error = read(folders, path, ranks)
        refused += error is not None
    assert refused > 10


@pytest.mark.parametrize("write", [write_killed, write_struck])
def test_every_field_of_a_manifest_is_read_or_refused_by_name(
    tmp_path: Path, write: Callable[[Path], list[Path]]
) -> None:
    folders = write(tmp_path)
    path = folders[0] / MANIFEST
    manifest = read_json(path)
    refused = set()
    for number, at in enumerate(places(manifest)):
        for wrong in some_wrong(number):
            write_json(path, changed(manifest, at, wrong))
            if read(folders, path, manifest["cell"]["ranks"]) is not None:
                refused.add(at[0])
    assert refused >= {*manifest} - {"error", "parameters"}


def test_a_wrong_type_is_refused_with_its_line_and_its_field(tmp_path: Path) -> None:
    folder, _ = write_killed(tmp_path)
    path = folder / "trace-0.jsonl"
    lines = path.read_text().splitlines()
    steps = next(number for number, line in enumerate(lines) if '"steps"' in line)
    lines[steps] = json.dumps({**json.loads(lines[steps]), "start_ns": ["soon"]})
    path.write_text("\n".join(lines) + "\n")
    error = read([folder], path, 2)
    assert str(error) == (
        f"{path}:{steps + 1}: not an event: start_ns is ['soon'], not a list in which each is a whole number; "
        f"remove {folder} to run the cell again"
    )
    manifest = read_json(folder / MANIFEST)
    write_json(folder / MANIFEST, {**manifest, "duration_s": "60"})
    assert str(read([folder], folder / MANIFEST, 2)) == (
        f"{folder / MANIFEST}: duration_s is '60', not a number or null; remove {folder} to run the cell again"
    )


@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_bytes(b"no archive"),
        lambda path: path.write_bytes(path.read_bytes()[:-40]),
        lambda path: np.save(path.open("wb"), np.zeros(3)),
        lambda path: np.savez(path, **{"model/dense.kernel": np.array(["a"])}),
        lambda path: np.savez(path, **{"model/dense.kernel": np.array([{}], object)}),
        lambda path: np.savez(path, **{"model/dense.kernel": np.zeros((3, 4, 5))}),
        lambda path: np.savez(path, **{"model/dense.kernel": np.full(2, np.nan, np.float64)}),
        lambda path: np.savez(path, odd=np.zeros(2, np.complex128)),
    ],
)
def test_wrong_arrays_are_compared_or_refused_with_their_file(
    tmp_path: Path, write: Callable[[Path], object]
) -> None:
    folders = write_killed(tmp_path)
    path = final_path(folders[0], 0)
    write(path)
    error = read(folders, path, 2)
    assert error is None or str(error).startswith(f"{path}: its arrays cannot be read: ")

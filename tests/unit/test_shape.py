"""What was read as JSON has the right types before anything is done with it, in every file of ours."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import pytest

from ckptbench.checkpointing.done_markers import gather_marked
from ckptbench.checkpointing.version import read_version
from ckptbench.common.errors import CkptbenchError
from ckptbench.common.files import is_inside
from ckptbench.common.shape import WrongShape, check
from ckptbench.config.record import StudyRecord
from ckptbench.inputs.datasets.dataset import Dataset
from ckptbench.inputs.environments.folder import installed_sha256
from ckptbench.launch.attempts import Attempt
from ckptbench.run.events import Epoch, Start, Written
from ckptbench.run.plan import Plan
from ckptbench.run.recorder import Recorder
from ckptbench.run.seal import verify_seal
from ckptbench.run.trace import whole_events

pytestmark = pytest.mark.usefixtures("never_hangs")


class Entry(TypedDict):
    size: int
    rank: int | None


FILE = {"name": "a", "kind": "own", "bytes": 5}


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (1, int), (1, float), (1.5, float), ("a", str), (True, bool), (None, None), ({}, dict[str, int]), ([], list[str]),
        ({"a": 1}, dict[str, Any]), ([1, 2.5], list[float]), (None, int | None), (3, Annotated[int, "ns"]),
        ("begin", Literal["begin", "end"]), ({"size": 1, "rank": None, "more": []}, Entry), ({"a": [1]}, dict[str, list[int]]),
        ({"epoch": 1, "start_ns": 1, "end_ns": 2, "samples": 3}, Epoch),
        ({"step": 1, "level": "shared", "at_ns": 2, "files": [FILE]}, Written),
    ],
    ids=str,
)  # fmt: skip
def test_what_has_the_shape_passes(value: object, hint: Any) -> None:
    check(value, hint)


@pytest.mark.parametrize(
    ("value", "hint", "words"),
    [
        (True, int, "it is True, not a whole number"),
        (1.0, int, "it is 1.0, not a whole number"),
        ("1", float, "it is '1', not a number"),
        (None, str, "it is None, not a text"),
        (1, bool, "it is 1, not true or false"),
        (5, int | None, None),
        ([1], dict[str, int], "holds no JSON object"),
        ({"a": "b"}, dict[str, int], "a is 'b', not a whole number"),
        ([1, True], list[int], r"\[1\] is True, not a whole number"),
        ({"a": [1, None]}, dict[str, list[float]], r"a\[1\] is None, not a number"),
        ("5", int | None, "it is '5', not a whole number"),
        (5, Literal["begin"], "it is 5, not a text"),
        ({"size": 1}, Entry, "rank is missing"),
        ({"a": {"size": "1", "rank": 1}}, dict[str, Entry], r"a\.size is '1', not a whole number"),
        (
            {"step": 1, "level": "shared", "at_ns": 2, "files": [{}]},
            Written,
            r"files\[0\]\.name is m",
        ),
        ("x" * 100, int, r"it is '[x]+\.\.\., not a whole number"),
    ],
    ids=str,
)
def test_a_wrong_value_is_named_with_its_place(value: object, hint: Any, words: str | None) -> None:
    if words is None:
        check(value, hint)
        return
    with pytest.raises(WrongShape, match=f"^{words}"):
        check(value, hint)


def test_the_names_of_files_inside_of_a_folder() -> None:
    assert all(map(is_inside, ("a", "a/b", "a..b", ".a")))
    assert not any(
        map(is_inside, ("", ".", "..", "/", "/a", "a/../../b", "../a", "a\0b", "\ud800"))
    )


READERS: dict[str, Callable[[Path], object]] = {
    "run/plan.json": Plan.read,
    "run/manifest.json": Attempt.read,
    "run/seal.json": lambda path: verify_seal(path.parent),
    "version-00000001/manifest.json": lambda path: read_version(path.parent),
    "staging/done-1.json": lambda path: gather_marked(
        path.parent, [1], are_written=True, staging=path.parent
    ),
    "dataset/dataset.json": lambda path: Dataset.open(path.parent),
    "study.json": StudyRecord.read,
    "run/trace-0.jsonl": lambda path: [*whole_events(path)],
}
TIMES = {"start_ns": 1, "end_ns": 2, "samples": 3}
CONTENTS: list[object] = [
    *(None, 5, "text", [], [[]], [None], {}, {"files": None}, {"files": 5}, {"files": {"a": None}}),
    {"schema_version": 6, "files": {"/etc/passwd": {"bytes": 1, "sha256": "0"}}},
    {"schema_version": 1, "name": 5, "image_shape": 5, "classes": None, "files": {"a": []}},
    {"schema_version": 1, "name": "a", "image_shape": [1], "classes": 2, "files": {"../a": {"bytes": 1, "sha256": "0"}}},
    {"cells": None, "training": None, "run_minutes": None, "repeat": False, "resume": False, "keep_after_run": 0},
    {"cells": [5], "training": [], "run_minutes": "5", "repeat": False, "resume": False, "keep_after_run": 0},
    {"event": "epoch", "epoch": [], **TIMES},
    {"event": ["epoch"], "epoch": 1, **TIMES},
    [{"name": "a"}],
    [{"name": "a", "kind": "own", "bytes": "5"}],
]  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_every_reader_of_our_files_refuses_what_has_another_shape(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    for content in CONTENTS:
        path.write_text(json.dumps(content) + "\n")
        if (name, content) == ("staging/done-1.json", []):
            continue  # a rank that has written nothing
        with pytest.raises(CkptbenchError):
            READERS[name](path)


@pytest.mark.parametrize("name", READERS)
def test_every_reader_of_our_files_refuses_a_fifo(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path)
    with pytest.raises(CkptbenchError):
        READERS[name](path)


def test_a_trace_is_not_written_into_a_fifo(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "trace-0.jsonl")
    with pytest.raises(OSError, match="it is no regular file") as refused:
        Recorder(tmp_path / "trace-0.jsonl")
    assert refused.value.filename == str(tmp_path / "trace-0.jsonl")


def test_the_types_of_every_event_are_known() -> None:
    check({"attempt": 1, "rank": 0, "world_size": 1, "host": "a", "pid": 1, "device": "cpu", "monotonic_ns": 1, "unix_ns": 1, "versions": {"a": "1"}}, Start)  # fmt: skip
    with pytest.raises(WrongShape, match=r"versions\.a is None, not a text"):
        check({"attempt": 1, "rank": 0, "world_size": 1, "host": "a", "pid": 1, "device": "cpu", "monotonic_ns": 1, "unix_ns": 1, "versions": {"a": None}}, Start)  # fmt: skip


def test_an_environment_without_a_readable_mark_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "ready.json").write_text("[]")
    with pytest.raises(CkptbenchError, match="holds no JSON object"):
        installed_sha256(tmp_path)

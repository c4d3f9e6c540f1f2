"""The seal: a run folder is a result when it is whole and unchanged, and only then."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from ckptbench.common.errors import RunFolderError
from ckptbench.common.files import read_json, write_json
from ckptbench.common.host import host_facts, source_revision
from ckptbench.run.layout import SCHEMA_VERSION, trace_path
from ckptbench.run.seal import seal, verify_seal


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_json(tmp_path / "manifest.json", {"status": "complete"})
    for rank in range(2):
        trace_path(tmp_path, rank).write_text('{"event":"end"}\n')
    seal(tmp_path, ranks=2)
    return tmp_path


def test_a_sealed_folder_is_verified(folder: Path) -> None:
    names = [path.name for path in verify_seal(folder)]
    assert names == ["manifest.json", "trace-0.jsonl", "trace-1.jsonl"]


def nest(path: Path) -> None:
    path.write_text("[" * 100_000)


def replace_by_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


SEALED = {"bytes": 5, "sha256": "0"}


def reseal(folder: Path, **fields: object) -> None:
    write_json(folder / "seal.json", {**read_json(folder / "seal.json"), **fields})


def replace_by_link(path: Path) -> None:
    """To the very same bytes: whoever changes those changes the result."""
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "seal.json").unlink(), "not a result: the run did not end"),
        (lambda folder: (folder / "trace-1.jsonl").unlink(), r"trace-1\.jsonl is missing; remove"),
        (
            lambda folder: os.truncate(folder / "trace-0.jsonl", 3),
            "has 3 bytes, was sealed with 16",
        ),
        (
            lambda folder: (folder / "trace-0.jsonl").write_text('{"event":"foo"}\n'),
            "was changed after it was sealed",
        ),
        (lambda folder: (folder / "seal.json").write_text("{"), "cannot be read as JSON"),
        (lambda folder: (folder / "seal.json").write_text("[]"), "holds no JSON object"),
        (
            lambda folder: (folder / "seal.json").write_text('{"schema_version": 99}'),
            f"schema_version is 99, this version reads {SCHEMA_VERSION}",
        ),
        (lambda folder: nest(folder / "seal.json"), "it is nested too deeply; remove"),
        (lambda folder: replace_by_fifo(folder / "seal.json"), "it is no regular file; remove"),
        (lambda folder: replace_by_fifo(folder / "trace-0.jsonl"), "trace-0.jsonl is no regular f"),
        (lambda folder: replace_by_link(folder / "trace-0.jsonl"), "trace-0.jsonl is no regular f"),
        *(
            (partial(reseal, files={name: SEALED}), "seal.json: is not of this run: it names")
            for name in ("/etc/passwd", "../other/trace-0.jsonl", "a/../../b", "a/b", "..", ".", "")
        ),
        *(
            (partial(reseal, files=wrong), "files is .*, not an object; rem")
            for wrong in (None, [])
        ),
        *(
            (
                partial(reseal, files={"trace-0.jsonl": wrong}),
                r"files\.trace-0\.jsonl is .*, not an o",
            )
            for wrong in (None, 5, [16])
        ),
        (partial(reseal, files={"a": {"bytes": 5}}), r"files\.a\.sha256 is missing; remove"),
        (partial(reseal, files={"a": {**SEALED, "bytes": "5"}}), "'5', not a whole number; remove"),
    ],
)
def test_damage_is_named_with_its_remedy(
    folder: Path, damage: Callable[[Path], object], words: str
) -> None:
    damage(folder)
    with pytest.raises(RunFolderError, match=words) as refused:
        verify_seal(folder)
    # Never a folder that is not the run's.
    assert {*re.findall(r"remove (\S+)", str(refused.value))} <= {str(folder)}


def test_a_json_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    write_json(path, {"a": 1})
    write_json(path, {"b": 2})
    assert read_json(path) == {"b": 2}
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.json"]


def test_the_host_is_described(tmp_path: Path) -> None:
    facts = host_facts(tmp_path)
    assert facts["cores"] == len(os.sched_getaffinity(0))
    assert facts["memory_bytes"] > 1e8
    assert facts["cpu"]
    assert facts["checkpoint_file_system"] in Path("/proc/mounts").read_text()
    json.dumps(facts)


def test_outside_of_git_there_is_no_revision(tmp_path: Path) -> None:
    assert source_revision(tmp_path) == {"revision": None, "dirty": None}


@pytest.mark.parametrize(
    ("changed", "dirty"),
    [
        ("src/train.py", True),
        ("src/new.py", True),
        ("config/config.yaml", False),
        ("mine.yaml", False),
    ],
)
def test_only_changes_of_the_source_make_it_another(
    tmp_path: Path, changed: str, dirty: bool
) -> None:
    for name in ("src/train.py", "config/config.yaml"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("as committed")
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init"], ["add", "."], [*author, "commit", "--message", "all"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True, capture_output=True)
    assert source_revision(tmp_path)["dirty"] is False
    (tmp_path / changed).write_text("by its user")
    assert source_revision(tmp_path)["dirty"] is dirty

"""A job that ended well and left nothing is a failed one: a node that sees no input says that nothing is to do."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake_interface_executor_plugins.settings import SharedFSUsage

from snakemake_executor_plugin_submitit.executor import Executor


class Output(str):
    """A file of a rule as Snakemake hands it over."""

    flags: dict[str, Any]

    def __new__(cls, path: Path, *flags: str) -> "Output":
        output = super().__new__(cls, path)
        output.flags = dict.fromkeys(flags, True)
        return output


def missing(*outputs: Output, shared: bool = True, group: bool = False) -> str | None:
    executor: Any = object.__new__(Executor)
    usage = {SharedFSUsage.INPUT_OUTPUT} if shared else set()
    executor.workflow = SimpleNamespace(
        storage_settings=SimpleNamespace(shared_fs_usage=usage),
        execution_settings=SimpleNamespace(latency_wait=0.1),
    )
    job: Any = SimpleNamespace(output=outputs, is_group=lambda: group)
    found: str | None = executor._missing_output(job)
    return found


def test_what_is_there_is_not_missing(tmp_path: Path):
    made = tmp_path / "made"
    made.touch()
    assert missing(Output(made)) is None


def test_what_is_not_there_is_named_with_where_to_look(tmp_path: Path):
    error = missing(Output(tmp_path / "out"))
    assert error is not None
    assert f"it ended well, but {tmp_path / 'out'} is not there" in error
    assert "whether the node sees the working folder" in error


@pytest.mark.parametrize("flag", ["pipe", "service", "storage_object"])
def test_what_is_no_file_of_the_shared_file_system_is_not_looked_for(tmp_path: Path, flag: str):
    assert missing(Output(tmp_path / "out", flag)) is None


def test_groups_and_other_file_systems_are_snakemakes_own_to_check(tmp_path: Path):
    assert missing(Output(tmp_path / "out"), group=True) is None
    assert missing(Output(tmp_path / "out"), shared=False) is None

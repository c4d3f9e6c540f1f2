"""Text of a user in a submission file: every printable character comes through, or is refused by its name."""

from __future__ import annotations

import string
from typing import Any

import pytest

from submitit_gridengine import GridEngineExecutor

PRINTABLE = "".join(sorted({*string.printable} - {*string.whitespace})) + " é学😀"
CONTROL = "\n\r\t\v\f\x00\x07\x1b\x85\u2028\u2029"
NOT_IN_PATH = "\"'#$:,"
"""Each seen to send logs elsewhere, or the job into an error state, with Grid Engine 8.1.9."""


def options(folder: str = "/shared/jobs", **parameters: Any) -> list[str]:
    executor = GridEngineExecutor(folder)
    executor.update_parameters(**{"python": "python3", **parameters})
    text = executor._make_submission_file_text(executor._submitit_command_str, "0")
    # Grid Engine reads `#$` lines wherever they stand.
    return [line.removeprefix("#$ ") for line in text.splitlines() if line.startswith("#$")]


PLAIN = options()


@pytest.mark.parametrize("character", sorted({*PRINTABLE} - {*NOT_IN_PATH, "/"}))
def test_logs_go_to_a_folder_with_any_other_character(character: str) -> None:
    found = options(folder=f"/shared/a{character}b")
    assert f'-o "/shared/a{character}b/$JOB_ID_0_log.out"' in found
    assert f'-e "/shared/a{character}b/$JOB_ID_0_log.err"' in found
    assert len(found) == len(PLAIN)


@pytest.mark.parametrize("character", NOT_IN_PATH + CONTROL)
def test_a_folder_that_qsub_would_read_otherwise_is_refused(character: str) -> None:
    with pytest.raises(ValueError, match="the folder is ") as refused:
        options(folder=f"/shared/a{character}b")
    assert repr(character) in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    "name",
    [
        *("queue", "account", "account_option", "parallel_environment", "node_resource"),
        *("memory_resource", "gpu_resource", "resources", "extra", "python"),
    ],
)
def test_no_parameter_begins_another_line(name: str) -> None:
    for character in CONTROL:
        with pytest.raises(ValueError, match=f"{name} is ") as refused:
            options(**{name: f"-a{character}#$ -o /elsewhere"})
        assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("value", ["a b", 'a"b', "a'b", "a#b", "a\\b", "-a", "a\u00a0b"])
@pytest.mark.parametrize("name", ["queue", "account", "parallel_environment", "node_resource"])
def test_a_name_is_one_word(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is "):
        options(**{name: value})


@pytest.mark.parametrize("queue", ["gpu.q@@fast", "*@host-1", "a|b", "学.q"])
def test_names_of_queues_come_through(queue: str) -> None:
    assert f"-q {queue}" in options(queue=queue)


@pytest.mark.parametrize("option", ["P", "-P x", "-", "", "-P\n"])
def test_an_option_is_one_option(option: str) -> None:
    with pytest.raises(ValueError, match="account_option is "):
        options(account_option=option)


@pytest.mark.parametrize("character", PRINTABLE + CONTROL)
def test_any_name_of_a_job_is_one_word(character: str) -> None:
    found = options(name=f"a{character}b")
    assert f"-N a{character}b" in found or "-N a_b" in found
    assert len(found) == len(PLAIN)

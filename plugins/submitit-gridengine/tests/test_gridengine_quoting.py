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


@pytest.mark.parametrize("queue", ["gpu.q@@fast", "*@host-1", "a|b", "学.q"])
def test_names_of_queues_come_through(queue: str) -> None:
    assert f"-q {queue}" in options(queue=queue)

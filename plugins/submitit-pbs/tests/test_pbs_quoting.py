"""Text of a user in a submission file: every printable character comes through, or is refused by its name."""

from __future__ import annotations

import shlex
import string
import subprocess
from pathlib import Path
from typing import Any

import pytest

from submitit_pbs import PbsExecutor

ASCII = "".join(sorted({*string.printable} - {*string.whitespace})) + " "
CONTROL = "\n\r\t\v\f\x00\x07\x1b\x85\u2028\u2029"
NOT_IN_PATH = '"é学😀\u00a0'
"""OpenPBS 23.06.06 answers `illegal -o value`, or writes its messages elsewhere."""


def text(folder: str, **parameters: Any) -> str:
    executor = PbsExecutor(folder)
    executor.update_parameters(**{"python": "python3", **parameters})
    return executor._make_submission_file_text(executor._submitit_command_str, "0")


def options(folder: str = "/shared/jobs", **parameters: Any) -> list[str]:
    lines = text(folder, **parameters).splitlines()
    return [line.removeprefix("#PBS ") for line in lines if line.startswith("#PBS")]


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")


@pytest.mark.parametrize("character", sorted({*ASCII} - {*NOT_IN_PATH, "/"}))
def test_messages_go_to_a_folder_with_any_other_character(character: str) -> None:
    found = options(folder=f"/shared/a{character}b")
    places = [line for line in found if line[:3] in ("-o ", "-e ")]
    assert [line[3:].strip('"') for line in places] == 2 * [f"/shared/a{character}b/"]
    assert character.isalnum() or character in "._+-" or places[0].count('"') == 2
    assert len(found) == len(options())


@pytest.mark.parametrize("character", NOT_IN_PATH + CONTROL)
def test_a_folder_that_qsub_does_not_take_is_refused(character: str) -> None:
    with pytest.raises(ValueError, match="the folder is ") as refused:
        options(folder=f"/shared/a{character}b")
    assert repr(character) in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("character", sorted({*ASCII} - {*NOT_IN_PATH, "/"}))
def test_the_jobs_own_logs_lie_where_submitit_looks(character: str, tmp_path: Path) -> None:
    folder = tmp_path / f"a{character}b"
    lines = text(str(folder)).splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("mkdir"))
    script = "\n".join(["export SUBMITIT_PBS_JOB_ID=7", *lines[start : start + 3], "echo done"])
    subprocess.run(["bash", "-c", script], check=True)
    assert (folder / "7_0_log.out").read_text() == "done\n"
    assert lines[-1].endswith(shlex.quote(str(folder)))

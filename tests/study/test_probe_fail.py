"""`ckptbench-probe check fail` on real trainings of two ranks, whose files PyTorch writes in C++."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.study.probed_training import Checked, checked, torchrun, warm

FAILS = Path(__file__).with_name("probe_fails.py")


def failed(folder: Path, how: str, *options: str) -> Checked:
    command = torchrun(warm("pytorch", "check resume"), str(FAILS), "{folder}", how)
    return checked(folder, "fail", *options, "--", *command)


@pytest.mark.frameworks("pytorch")
def test_ranks_that_agree_on_the_failure_go_on(tmp_path: Path) -> None:
    found = failed(tmp_path, "agrees", "--as", "quota")
    assert found.report["exit_code"] == 0, found.lines
    assert found.lines[1] == "a quota: training goes on; resumed from 4; after save 4, resumed from 8"  # fmt: skip
    assert found.lines[2].startswith("its output says, without the reason: step-0006.pt was not saved: RuntimeError: ")  # fmt: skip


@pytest.mark.frameworks("pytorch")
def test_ranks_that_wait_for_one_that_has_failed_hang(tmp_path: Path) -> None:
    found = failed(tmp_path, "waits", "--timeout", "0.5")
    assert found.report["exit_code"] == 5, found.lines
    assert found.report["failures"][0]["resumed_from"] == 4

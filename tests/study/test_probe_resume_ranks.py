"""`ckptbench-probe check resume --resume-ranks` on real trainings: state that every rank has whole, and state that is sharded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.study.probed_examples import TRAINED
from tests.study.probed_training import EXAMPLES, Checked, checked, torchrun, warm

RESHARDS = Path(__file__).with_name("probe_reshards.py")


def other_ranks(folder: Path, ranks: int, *command: str, kill_at: int) -> Checked:
    numbers = ["--kill-at", str(kill_at), "--ranks", "2", "--resume-ranks", str(ranks)]
    return checked(folder, "resume", *numbers, "--", *command)


def launched(*command: str) -> list[str]:
    words = torchrun(warm("pytorch", "check resume"), *command)
    return [word.replace("--nproc-per-node=2", "--nproc-per-node={ranks}") for word in words]


@pytest.mark.frameworks("pytorch")
@pytest.mark.parametrize("name", ["gpt_ddp", "gpt_fsdp"])
def test_an_example_resumes_on_one_rank(name: str, tmp_path: Path) -> None:
    example = TRAINED[name]
    command = launched(str(EXAMPLES / f"{name}.py"), *example.lengths(), "--folder", "{folder}")  # fmt: skip
    found = other_ranks(tmp_path, 1, *command, kill_at=example.kill_at)
    assert found.report["exit_code"] == 0, found.lines
    saved = 2 * example.save_every
    assert found.report["resumed_from"] in ({saved, example.save_every} if example.background else {saved})  # fmt: skip
    assert found.lines[0].endswith(
        ": 212 tensors of model and optimizer, gathered from their parts"
    )


@pytest.mark.frameworks("pytorch")
@pytest.mark.parametrize(
    ("how", "ranks", "line"),
    [
        ("right", 4, "same on 4 ranks as on 2, bit by bit, at the resume from update 4: 2 tensors "),
        ("wrong", 1, "DIFFERENT on 1 rank: 1 of 2 tensors are not those of update 4 on 2: 0.0/momentum_buffer"),
    ],
)  # fmt: skip
def test_parts_that_are_joined_in_the_wrong_order_are_found(
    how: str, ranks: int, line: str, tmp_path: Path
) -> None:
    found = other_ranks(tmp_path, ranks, *launched(str(RESHARDS), "{folder}", how), kill_at=6)
    assert found.lines[0].startswith(line), found.lines

"""What `ckptbench decide` says to paste, how many versions a disk holds, and whose copy a node does not hold."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ckptbench.cli.room import GPUS_PER_NODE
from ckptbench.cli.tables import usual
from ckptbench.cli.verbs import run
from ckptbench.common.errors import ConfigError
from ckptbench.report.answer.programs import PROGRAMS, rows
from tests.unit.test_command import BOTH, CASE, COSTS, refused, said

SIZED = [*BOTH, "--params", "7B"]
"""98 GB, of which a node of 8 among 256 GPUs has 3.06."""
SACCT = """JobID|State|Start|End|Elapsed|AllocTRES
1|NODE_FAIL|2026-01-01T00:00:00|2026-01-03T00:00:00|2-00:00:00|gres/gpu=8
2|PREEMPTED|2026-01-03T01:00:00|2026-01-05T01:00:00|2-00:00:00|gres/gpu=8
3|PREEMPTED|2026-01-05T02:00:00|2026-01-07T02:00:00|2-00:00:00|gres/gpu=8
4|PREEMPTED|2026-01-07T03:00:00|2026-01-09T03:00:00|2-00:00:00|gres/gpu=8
5|COMPLETED|2026-01-09T04:00:00|2026-01-11T04:00:00|2-00:00:00|gres/gpu=8
"""


def pasted(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines below the last empty one."""
    return said(arguments, capsys).rpartition("\n\n")[2].splitlines()


@pytest.mark.parametrize("tool", PROGRAMS)
def test_each_program_has_its_lines(tool: str, capsys: pytest.CaptureFixture[str]) -> None:
    head, *lines = pasted([*BOTH, "--for", tool], capsys)
    blocks = PROGRAMS[tool].background is None and tool != "slurm"
    assert head.startswith("blocking: every 1,000 steps, 42 min" if blocks else "async: every 200 steps, 8.3 min")  # fmt: skip
    text = "\n".join(lines)
    assert PROGRAMS[tool].name in lines[0]
    assert not re.search(r"{(steps|minutes|seconds|keep|kept)}", text)
    assert tool == "slurm" or re.search(r"\b(1000|200)\b", text)
    every = said([*BOTH, "--for", tool, "--save-steps"], capsys)
    assert every.endswith("\n".join(lines) + "\n") or blocks
    assert text in every


def test_programs_named_together_share_an_interval_that_all_can_use(
    capsys: pytest.CaptureFixture[str],
) -> None:
    head, *lines = pasted([*BOTH, "--for", "hf", "--for", "slurm"], capsys)
    assert head.startswith("blocking: every 1,000 steps, 42 min")
    assert [line.split()[0] for line in lines] == ["Transformers", "at", "Slurm"]
    head, *lines = pasted([*BOTH, "--for", "torchtitan", "--for", "slurm"], capsys)
    assert head.startswith("async: every 200 steps, 8.3 min")
    assert lines[0].split()[0] == "torchtitan"
    assert "--signal=TERM@" in lines[-1]


def test_a_time_stands_where_the_program_takes_one() -> None:
    many = {"steps": 900, "interval_s": 2250.0, "stop_s": 62.5, "is_async": False}
    of = {tool: dict(rows(tool, **many, keep=3)) for tool in PROGRAMS}
    assert of["lightning"]["or by time"] == 'ModelCheckpoint(train_time_interval=timedelta(minutes=38), save_top_k=3, monitor="step", mode="max")'  # fmt: skip
    assert "ContinuousCheckpointingPolicy(minimum_interval_secs=2250)" in of["orbax"]["or by time"]
    assert "LatestN(3)" in of["orbax"]["or by time"]
    assert "minutes:38}" in of["nemo"]["or by time"]
    assert [tool for tool in of if "or by time" in of[tool]] == ["lightning", "nemo", "orbax"]
    assert of["hf"]["keep"] == "save_total_limit=3"
    assert of["torchtitan"]["keep"] == "--checkpoint.keep_latest_k=3"
    assert of["slurm"] == {"Slurm": "#SBATCH --signal=TERM@160, to all that srun starts (B:TERM: only to the script)"}  # fmt: skip


def test_a_program_is_asked_for_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--for and --json: give one of them" in refused([*BOTH, "--for", "hf", "--json"], capsys)
    assert "'--for'" in refused([*BOTH, "--for", "caffe"], capsys)
    text = "\n".join(pasted([*CASE, "--async", "3s+90s", "--for", "hf"], capsys))
    assert "Transformers  has no asynchronous saves of its own" in text


def test_a_disk_holds_so_many_and_one_is_being_written(capsys: pytest.CaptureFixture[str]) -> None:
    text = said([*SIZED, "--disk", "2TB", "--for", "hf"], capsys)
    assert "2.00 TB holds 20 checkpoints of 98.0 GB: keep 2 to 19" in text
    assert "save_total_limit=19" in text
    assert "keep 2, as one" in said([*SIZED, "--disk", "294GB"], capsys)
    text = said([*SIZED, "--disk", "293GB", "--for", "hf"], capsys)
    assert "Do not train with so little room: 293 GB holds 2 checkpoints" in text
    assert "294 GB" in text
    assert "save_total_limit" not in text


def test_without_a_size_one_line_says_what_to_give(capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--disk", "--memory"):
        assert f"{option}: give --state 98GB or --params 7B too" in refused([*BOTH, option, "2TB"], capsys)  # fmt: skip
        with pytest.raises(ConfigError, match=f"{option}: nothing says how large a checkpoint is"):
            run(["decide", "--costs", COSTS, "--mtbf", "14h", option, "2TB"])
    assert "--state: give --bandwidth" in refused([*CASE, "--state", "98GB", "--disk", "2TB"], capsys)  # fmt: skip
    text = said(["decide", "--costs", COSTS, "--mtbf", "14h", "--disk", "2TB", "--state", "98GB"], capsys)  # fmt: skip
    assert "holds 20 checkpoints" in text


def test_a_size_for_the_room_changes_no_time(capsys: pytest.CaptureFixture[str]) -> None:
    """Also with a size, a disk and a bandwidth the saves are those of before."""
    plain = json.loads(said([*BOTH, "--json"], capsys))["strategies"]
    assert json.loads(said([*SIZED, "--disk", "2TB", "--json"], capsys))["strategies"] == plain
    by_bytes = [*CASE, "--state", "98GB", "--bandwidth", "2GB/s"]
    plain = json.loads(said([*by_bytes, "--json"], capsys))["strategies"]
    assert json.loads(said([*by_bytes, "--disk", "2TB", "--json"], capsys))["strategies"] == plain


def test_a_copy_that_a_node_does_not_hold_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """The copy of its 8 GPUs' shards, twice if it is handed to another process."""
    assert usual().gpus_per_node == GPUS_PER_NODE
    for memory, words in (("7GB", "twice if it is pinned and a separate process writes: 7.00 GB hold it"), ("6GB", "6.00 GB do not hold: write from a thread")):  # fmt: skip
        text = said([*SIZED, "--memory", memory], capsys)
        assert "async     9.1 min" in text
        assert words in " ".join(text.split())
    text = said([*SIZED, "--memory", "3GB"], capsys)
    assert "Do not use async: an asynchronous save keeps a copy of 3.06 GB" in text
    assert "async     9.1 min" not in text
    assert "Do not use async" in said([*SIZED, "--memory", "64GB", "--shared-by", "1"], capsys)
    with pytest.raises(ConfigError, match="--memory: no strategy fits: Do not use async"):
        run([*CASE, "--async", "3s+90s", "--params", "7B", "--memory", "3GB"])


def test_a_strategy_of_a_file_that_does_not_fit_is_not_compared(
    capsys: pytest.CaptureFixture[str],
) -> None:
    costs = ["decide", "--costs", COSTS, "--mtbf", "14h", "--state", "300GB"]
    text = said([*costs, "--memory", "4GB"], capsys)
    assert "Do not use asynchronous: an asynchronous save keeps a copy of 4.69 GB" in text
    assert "asynchronous, shrink" not in text
    assert "asynchronous, shrink" in said([*costs, "--memory", "64GB"], capsys)


def test_a_warning_says_whose_saves_are_in_time(capsys: pytest.CaptureFixture[str]) -> None:
    warned = [*BOTH, "--warning", "80s", "--announced", "80%"]
    text = " ".join(said(warned, capsys).split())
    assert "Of the failures 80 % are announced 80 s before." in text
    assert "in time: blocking (60 s); too late: async (1.6 min)." in text
    now, late = (json.loads(said([*each, "--json"], capsys))["strategies"] for each in (warned, BOTH))  # fmt: skip
    assert now[0]["loses"] < 0.6 * late[0]["loses"]
    assert now[0]["steps"] > 2 * late[0]["steps"]
    assert now[1]["loses"] == late[1]["loses"]
    short = [
        *BOTH,
        "--warning",
        "61s",
        "--announced",
        "80%",
    ]  # a step of 2.5 s ends before the save of 60 s
    text = " ".join(said(short, capsys).split())
    assert "then training saves, too late: blocking (60 s), async (1.6 min)." in text
    assert json.loads(said([*short, "--json"], capsys))["strategies"] == late
    costs = ["decide", "--costs", COSTS, "--mtbf", "14h"]
    sudden, told = (
        json.loads(said([*costs, *more, "--json"], capsys))["strategies"]
        for more in ([], warned[-4:])
    )
    better = {each["name"] for each, before in zip(told, sudden, strict=True) if each["loses"] < before["loses"]}  # fmt: skip
    assert better == {"torch.save, shrink", "torch.save, restart"}


def test_preemptions_of_a_log_are_those_that_are_announced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "jobs.txt"
    log.write_text(SACCT)
    case = ["decide", "--gpus", "8", "--step", "2.5s", "--blocking", "60s", "--restart", "8min", "--log", str(log)]  # fmt: skip
    counted = [*case, "--count", "PREEMPTED", "--warning", "2min"]
    assert "Of the failures 75 % are announced 2.0 min before." in " ".join(said(counted, capsys).split())  # fmt: skip
    # Three times as many GPUs fail three times as often, and are preempted as often.
    more = [word if word != "8" else "24" for word in counted]
    assert "Of the failures 50 % are announced" in " ".join(said(more, capsys).split())
    assert "count preemptions: --log JOBS --count PREEMPTED" in refused([*case, "--warning", "2min"], capsys)  # fmt: skip
    both = [*case, "--count", "PREEMPTED,TIMEOUT", "--warning", "2min"]
    assert "count time limits by --limit" in refused(both, capsys)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--warning", "2min"], "say with --announced which part"),
        (["--announced", "80%"], "--announced: give --warning too"),
        (["--warning", "2min", "--announced", "80"], "'80' is not a part: write it as 80% or 0.8"),
    ],
)
def test_what_a_warning_lacks_is_said(options: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    assert words in refused([*BOTH, *options], capsys)

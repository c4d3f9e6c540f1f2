"""`ckptbench_probe.Interval` in real trainings: by `torch.save`, and by `dcp.async_save` of two ranks. How little it loses is measured by `benchmarks/due.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.study.probed_training import plain, torchrun, warm

pytestmark = pytest.mark.frameworks("pytorch")
SCRIPT = str(Path(__file__).with_name("probe_due.py"))
STEPS = 200


def trained(folder: Path, way: str, *words: str) -> list[dict[str, Any]]:
    """What each rank says, in any order."""
    python = warm("pytorch", "plain")
    command = torchrun(python, SCRIPT) if way == "dcp_async" else [python, SCRIPT]
    out = plain(folder, *command, way, *words)
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


@pytest.mark.parametrize(("way", "ranks"), [("torch_save", 1), ("dcp_async", 2)])
def test_it_saves_on_all_ranks_alike_and_goes_on_after_a_restart(
    way: str, ranks: int, tmp_path: Path
) -> None:
    first = trained(tmp_path, way, "1s", str(STEPS))
    assert len(first) == ranks
    steps = [[step for step, _, _ in one["saves"]] for one in first]
    assert steps == [steps[0]] * ranks
    assert [one["learned"] for one in first] == [first[0]["learned"]] * ranks
    assert steps[0][0] in (16, 24)
    assert len(steps[0]) == len(list((tmp_path / "checkpoints").iterdir())) >= 2
    again = trained(tmp_path, way, "1s", str(2 * STEPS))
    later = [[step for step, _, _ in one["saves"]] for one in again]
    assert later == [later[0]] * ranks
    for one in again:
        assert one["resumed"] == steps[0][-1]
        # It learns nothing anew.
        assert one["known"] == later[0][0] - steps[0][-1]
        assert one["learned"]["saves"] > len(steps[0])

"""ckptbench-probe on real PyTorch: updates of every kind, beside the same without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.study.probe_updates_names import UPDATES
from tests.study.probed_training import plain, probed, warm

pytestmark = pytest.mark.frameworks("pytorch")
UPDATING = Path(__file__).with_name("probe_updates.py")


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each way to train prints without the probe."""
    folder = tmp_path_factory.mktemp("plain")
    return {
        line.partition(" ")[0]: line
        for line in plain(folder, warm("pytorch", "plain"), str(UPDATING), *UPDATES).splitlines()
    }


@pytest.mark.parametrize("way", UPDATES)
def test_every_update_counts_once_and_nothing_changes(
    way: str, without: dict[str, str], tmp_path: Path
) -> None:
    known = UPDATES[way]
    training = probed(tmp_path, warm("pytorch", "run"), str(UPDATING), way)
    assert training.out.splitlines() == [without[way]]
    assert training.summary["updates"] == known.steps
    assert training.summary["skipped"] == known.skipped
    if known.backwards is not None:
        assert training.summary["backwards_per_update"] == pytest.approx(known.backwards)
        counted = training.events("updates")[-1]["counted"]
        lasts_longer_than_is_counted = way == "compiled_whole"
        assert (counted < known.steps) is lasts_longer_than_is_counted

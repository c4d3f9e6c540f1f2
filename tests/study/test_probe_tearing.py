"""ckptbench-probe check saves: each way to save is said to be whole or torn as it is, with real engines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.study.probed_training import (
    Checked,
    checked,
    cold,
    plain,
    torchrun,
    warm,
)

TEARING = Path(__file__).with_name("probe_tearing.py")
RANKS = Path(__file__).with_name("probe_tearing_ranks.py")
SAVES = (4, 8, 12)
"""Updates after which the program saves."""


@dataclass(frozen=True)
class Ways(Checked):
    def of(self, way: str) -> list[dict[str, Any]]:
        rows = [save for one in self.report["checkpoints"] for save in one["saves"]]
        return [one for one in rows if Path(one["path"]).name.rpartition("-")[0] == way]


def check(folder: Path, *command: str) -> Ways:
    found = checked(folder, "saves", "--", *command)
    assert found.report["command_exit_code"] == 0, found.told
    return Ways(found.out, found.told, found.report)


TORN = {
    "torch_thread": 12,
    "torch_thread_shallow": 12,
    "torch_pool": 4,
    "queue_alias": 12,
    "thread_of_a_class": 4,
    "names_thread": 1,
    "safetensors_thread": 4,
    "staging": 12,
    "stager_reused_early": 12,
}
"""How many tensors of the first two files tell an update. Nothing happens after the last save, so that one is whole."""
WHOLE = (
    "torch_sync", "torch_open_file", "torch_thread_cloned", "torch_pool_cloned", "torch_pool_buffers", "safetensors_thread_cloned", "older_copy_too", "dcp_sync", "dcp_url", "dcp_async",
    "dcp_process", "staging_awaited", "stager_reused", "queue_cloned", "same_path", "late_file", "folder", "names",
    "pointed_ahead", "pointed_behind", "pointed_first", "pointed_last",
)  # fmt: skip
CANNOT_TELL = {
    "cut_short": "its engine cannot read it (",
    "fails": "the save has failed (RuntimeError: Parent directory no-such-folder does not exist.)",
    "torch_behind": "its file has something else before it",
    "no_tensor": "it has no tensor that can be compared",
    "late_file_fails": "the save has failed: its file was not whole when the save returned, and is gone since",
}
WAYS = (*TORN, *WHOLE, *CANNOT_TELL, "two_updates", "cast", "queue_counts", "two_files")


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Ways:
    """All ways, one after another, in one process."""
    folder = tmp_path_factory.mktemp("check")
    return check(folder, warm("pytorch", "check saves"), str(TEARING), *WAYS)


@pytest.mark.frameworks("pytorch")
def test_a_training_that_starts_cold_is_checked_as_those_that_start_warm(tmp_path: Path) -> None:
    found = check(tmp_path, cold("pytorch"), str(TEARING), "torch_sync", "torch_thread")
    assert [one["verdict"] for one in found.of("torch_sync")] == ["whole"] * 3
    assert [one["verdict"] for one in found.of("torch_thread")] == ["TORN", "TORN", "whole"]


@pytest.mark.frameworks("pytorch")
def test_the_training_prints_what_it_prints_without_the_check(
    everything: Ways, tmp_path: Path
) -> None:
    alone = plain(tmp_path, warm("pytorch", "plain"), str(TEARING), "torch_sync")
    assert everything.lines == [f"{way} {alone.split()[1]}" for way in WAYS]


@pytest.mark.frameworks("pytorch")
def test_pointers_that_are_moved_before_their_checkpoint_is_finished(everything: Ways) -> None:
    """In a thread and by hand."""
    told = [text.partition(" was moved")[0] for text in everything.report["pointed_too_early"]]
    assert sorted(told) == ["3 times latest_pointed_ahead", "3 times latest_pointed_first"]


@pytest.mark.frameworks("pytorch")
@pytest.mark.parametrize("way", TORN)
def test_a_file_whose_bytes_were_taken_while_training_went_on_is_torn(
    way: str, everything: Ways
) -> None:
    *torn, last = everything.of(way)
    assert last["verdict"] == "whole"
    assert [one["update"] for one in torn] == list(SAVES[:2])
    for one in torn:
        assert one["verdict"] == "TORN"
        assert one["torn"] == (1 if way == "names_thread" else one["compared"])
        assert ("['7']" if way == "names_thread" else "0.weight") in one["text"]
        assert_later(one, TORN[way])


def assert_later(one: dict[str, Any], number: int) -> None:
    """So many tensors are of updates after the save, or torn within, as threads go on while the file is written."""
    assert sum(one["torn_of"].values()) == number
    later = [int(of) for of in one["torn_of"] if of != "mixed"]
    assert all(update > one["update"] for update in later)
    assert later == [] or f"of update {min(later)}" in one["text"]


@pytest.mark.frameworks("pytorch")
@pytest.mark.parametrize("way", WHOLE)
def test_a_file_whose_bytes_were_copied_in_time_is_whole(way: str, everything: Ways) -> None:
    rows = everything.of(way)
    assert [(one["verdict"], one["state_of"]) for one in rows] == [
        ("whole", update) for update in SAVES
    ]
    assert all(one["compared"] >= 4 and not one["torn"] for one in rows)


@pytest.mark.frameworks("pytorch")
def test_numbers_and_lists_that_go_on_beside_copies_are_torn(everything: Ways) -> None:
    *torn, last = everything.of("queue_counts")
    assert last["verdict"] == "whole"
    for one in torn:
        assert (one["verdict"], one["torn"], one["torn_of"]) == ("TORN", 5, {})
        assert one["names"] == ["steps.0", "steps.1", "steps.2"]


@pytest.mark.frameworks("pytorch")
def test_files_between_two_updates_are_one_checkpoint(everything: Ways) -> None:
    rows = [one for one in everything.report["checkpoints"] if "folder-" in one["path"]]
    assert [Path(one["path"]).name for one in rows] == [f"folder-{update}" for update in SAVES]
    assert [one["files"] for one in rows] == [2] * len(SAVES)
    rows = [one for one in everything.report["checkpoints"] if "two_files-" in one["path"]]
    assert [len(one["saves"]) for one in rows] == [2] * len(SAVES)


@pytest.mark.frameworks("pytorch")
@pytest.mark.parametrize("way", CANNOT_TELL)
def test_a_file_that_cannot_be_compared_is_never_called_whole(way: str, everything: Ways) -> None:
    rows = everything.of(way)
    assert [one["verdict"] for one in rows] == ["cannot tell"] * len(SAVES)
    assert all(one["text"].startswith(CANNOT_TELL[way]) for one in rows)


@pytest.mark.frameworks("pytorch")
def test_weights_of_one_update_beside_moments_of_another_are_mixed_as_given(
    everything: Ways,
) -> None:
    first, *later = everything.of("two_updates")
    assert first["verdict"] == "whole"
    for one, update in zip(later, SAVES[1:], strict=True):
        assert (one["verdict"], one["several"]) == ("mixed as given", {"4": 4, str(update): 8})


@pytest.mark.frameworks("pytorch")
def test_casts_and_random_states_are_compared_with_what_the_save_was_given(
    everything: Ways,
) -> None:
    for one, update in zip(everything.of("cast"), SAVES, strict=True):
        assert (one["verdict"], one["state_of"]) == ("whole", None)
        assert one["text"] == f"the tensors passed to the save after update {update}"
        assert (one["compared"], one["left"]) == (5, ["by (Author)"])


@pytest.mark.frameworks("pytorch")
def test_the_verdict_comes_first(everything: Ways) -> None:
    torn = 2 * len(TORN) + 2
    verdict = (
        f"TORN: {torn} of {len(SAVES) * len(WAYS)} checkpoints are not the state of one update"
    )
    told = [line for line in everything.told.splitlines() if line.startswith("ckptbench-probe: ")]
    assert told[0] == f"ckptbench-probe: verdict       {verdict}"
    assert everything.report["exit_code"] == 1


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Ways:
    return check(
        tmp_path_factory.mktemp("ranks"), *torchrun(warm("pytorch", "check saves"), str(RANKS))
    )


PARAMETERS = 4


@pytest.mark.frameworks("pytorch")
def test_each_rank_compares_the_parts_that_it_has_written(ranks: Ways) -> None:
    """Two ranks have a weight and two moments of each parameter. The step is the same on both, and written once."""
    for one in ranks.of("sharded_awaited"):
        assert (one["verdict"], one["state_of"]) == ("whole", one["update"])
        assert one["ranks"] == [0, 1]
        assert one["compared"] == PARAMETERS * (2 * 3 + 1)


@pytest.mark.frameworks("pytorch")
def test_shards_that_were_staged_while_training_went_on_are_torn(ranks: Ways) -> None:
    *torn, last = ranks.of("sharded")
    assert last["verdict"] == "whole"
    for one in torn:
        assert one["verdict"] == "TORN"
        assert_later(one, PARAMETERS * 2 * 3)


@pytest.mark.frameworks("pytorch")
def test_what_differs_between_ranks_and_is_kept_once_is_not_torn(ranks: Ways) -> None:
    """The program resumes with the buffers and the random state of one rank on all, but the file is whole."""
    for one in ranks.of("replicated"):
        assert (one["verdict"], one["state_of"]) == ("whole", one["update"])


@pytest.mark.frameworks("tensorflow")
def test_keras_is_whole_in_the_foreground_and_torn_in_a_thread(tmp_path: Path) -> None:
    program = str(Path(__file__).with_name("probe_tearing_keras.py"))
    seen = check(tmp_path / "checked", warm("tensorflow", "check saves"), program)
    assert seen.out == plain(tmp_path / "plain", warm("tensorflow", "plain"), program)
    weights, optimizer = 4, 2 * 4 + 2  # a file of weights has the optimizer, too
    for way in ("whole", "weights"):
        rows = seen.of(way)
        assert [one["verdict"] for one in rows] == ["whole"] * 3
        assert [one["compared"] for one in rows] == [weights + optimizer] * 3
    verdicts = [one["verdict"] for one in seen.of("thread")]
    assert verdicts == ["TORN", "TORN", "whole"]


@pytest.mark.frameworks("trainers")
@pytest.mark.parametrize(("way", "torn"), [("copied", 0), ("shared", 2)])
def test_lightning_is_whole_where_its_thread_has_a_copy(
    way: str, torn: int, tmp_path: Path
) -> None:
    """A file of `shared` is compared with what the thread was handed, also the second, which it begins after the last update."""
    program = Path(__file__).with_name("probe_tearing_lightning.py")
    seen = check(tmp_path, warm("trainers", "check saves"), str(program), way)
    rows = seen.of(way)
    assert [one["verdict"] for one in rows] == ["TORN"] * torn + ["whole"] * (3 - torn)
    assert [one["update"] for one in rows[:torn]] == list(SAVES[:torn])
    assert [one["state_of"] for one in rows[torn:]] == list(SAVES[torn:])
    for one in rows[:torn]:
        assert_later(one, 12)

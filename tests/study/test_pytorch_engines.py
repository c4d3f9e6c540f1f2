"""The strategies of PyTorch's engines: whole versions in all their ways but one, and an error where one cannot be written.

The one, `dcp_async` with staging that training does not wait for, is a negative control: its versions are torn. So are those
of `torch_checkpointing` where no update waits.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from checkout import wait_for
from pytorch_engines import AT_ONCE, BLOCKED, PROCESSES, WAYS
from ranks import Found, part_of, run_scenario
from scenario import strategies_of
from warm.environments import warm_environments

from ckptbench.matrix.networks.tensor_groups import group_of
from tests.living import is_running

SCRIPT = Path(__file__).with_name("pytorch_engines.py")
RANKS = 2
FRAMEWORK = "pytorch"
pytestmark = pytest.mark.frameworks(FRAMEWORK)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[Found]:
    folder = tmp_path_factory.mktemp("engines")
    return run_scenario(FRAMEWORK, "engine", folder, ranks=RANKS, script=SCRIPT)


def differing(first: Found, second: Found) -> set[str]:
    assert first.keys() == second.keys()
    return {name for name in first if first[name].tobytes() != second[name].tobytes()}


@pytest.mark.parametrize("way", WAYS)
def test_a_version_is_the_state_of_its_step_though_training_went_on(
    found: list[Found], way: str
) -> None:
    for rank in found:
        then, loaded = (part_of(rank, f"{way}/{when}") for when in ("then", "loaded"))
        assert {group_of(name) for name in then} >= {"weights", "momentum", "statistics"}
        assert differing(then, loaded) == set()


@pytest.mark.parametrize("kind", ["awaited", "beside"])
def test_a_slow_copy_that_training_awaits_is_whole(found: list[Found], kind: str) -> None:
    for rank in found:
        before, after, loaded = (
            part_of(rank, f"{kind}/{when}") for when in ("before", "after", "loaded")
        )
        assert differing(before, after) == before.keys()
        assert differing(before, loaded) == set()


@pytest.mark.parametrize(
    ("kind", "copied"),
    [
        ("unawaited", {"weights", "momentum", "statistics"}),
        ("beside_unawaited", {"weights", "momentum"}),
    ],
)
def test_a_slow_copy_that_training_does_not_await_is_torn(
    found: list[Found], kind: str, copied: set[str]
) -> None:
    """All that was not copied before the step ended is that of the step after."""
    for rank in found:
        before, after, loaded = (
            {
                name: array
                for name, array in part_of(rank, f"{kind}/{when}").items()
                if group_of(name) in copied
            }
            for when in ("before", "after", "loaded")
        )
        torn = differing(before, loaded)
        assert {group_of(name) for name in torn} == copied
        assert len(before.keys() - torn) == AT_ONCE
        assert differing(after, loaded) == before.keys() - torn


def test_two_ranks_load_what_one_has_written(tmp_path: Path) -> None:
    """The other direction is in `test_frameworks.py`. The second rank begins with the first one's statistics."""
    one = str(tmp_path / "one")
    then = part_of(run_scenario(FRAMEWORK, "save", Path(one))[0], "saved")
    both = run_scenario(
        FRAMEWORK, "resume", tmp_path / "two", ranks=2, formats=[], saved=one, others=one
    )  # fmt: skip
    for found in both:
        for strategy in strategies_of(FRAMEWORK):
            assert differing(then, part_of(found, f"of_others/{strategy}")) == set(), strategy


def those_that_write(found: list[Found], strategy: str) -> list[Found]:
    """The engines whose ranks write together tell all of them of an error. Another rank hears of it from the launcher."""
    return found[:1] if strategy == "torch_checkpointing" else found


@pytest.mark.parametrize("way", BLOCKED)
def test_a_file_that_one_rank_cannot_write_is_an_error_of_the_next_save(
    found: list[Found], way: str
) -> None:
    name, spec = BLOCKED[way]
    for rank in those_that_write(found, spec.name):
        said = str(rank[f"failed/{way}"])
        assert "the checkpoint of step 3 cannot be written to " in said
        assert "[Errno 21] Is a directory" in said
        assert f"version-00000003.partial/{name}" in said
        assert "\n" not in said


@pytest.mark.parametrize("strategy", PROCESSES)
def test_the_death_of_the_writing_process_is_an_error_of_the_next_save(
    found: list[Found], strategy: str
) -> None:
    for rank in those_that_write(found, strategy):
        said = str(rank[f"died/{strategy}"])
        assert "the checkpoint of step 3 cannot be written to " in said
        assert "the process that writes in the background was killed by SIGKILL" in said
        assert "\n" not in said


def test_nothing_is_left_when_the_strategies_are_closed(found: list[Found]) -> None:
    for rank in found:
        assert list(rank["left"]) == []


@pytest.mark.parametrize("strategy", PROCESSES)
def test_the_writing_process_ends_with_a_rank_that_is_killed(tmp_path: Path, strategy: str) -> None:
    """In the middle of a save, and though no launcher ends it."""
    python = warm_environments() / FRAMEWORK / "bin" / "python"
    subprocess.run(
        [str(python), str(SCRIPT), FRAMEWORK, "be_killed", strategy, str(tmp_path)],
        check=False, timeout=300,
    )  # fmt: skip
    pid = int((tmp_path / "pid").read_text())
    wait_for(lambda: not is_running(pid), "the writing process to end")
    assert sorted(path.name for path in (tmp_path / "killed").glob("version-*")) == [
        "version-00000003", "version-00000004.partial"
    ]  # fmt: skip

"""Every strategy, over every framework that it serves, writes versions that are the states of their steps.

What is tried comes from the registries, so whoever registers a framework or a strategy has it tried here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
from consistency import (
    BY_NUMPY,
    COPYING,
    SAVES,
    STRANGE,
    STRANGERS,
    TRACED,
    UNAWAITED,
    formats_tried,
)
from ranks import Found, part_of, run_scenario
from selection import CONSISTENT, FULL, OWN, RANKS

from ckptbench.matrix.networks.tensor_groups import group_of
from ckptbench.matrix.registry import STRATEGIES

SCRIPT = Path(__file__).with_name("consistency.py")
PAIRS = [
    (framework, strategy, format)
    for framework in CONSISTENT
    for strategy, entry in STRATEGIES.items()
    if entry.serves(framework)
    for format in formats_tried(framework, strategy)
] + [
    (framework, f"{strategy}{BY_NUMPY}", "safetensors")
    for framework in CONSISTENT
    for strategy in COPYING
]


NUMBERS = RANKS if FULL else RANKS[-1:]
"""Of ranks. What one rank does, each of several does too."""
ON = [
    (framework, ranks)
    for framework in CONSISTENT
    for ranks in NUMBERS
    if ranks > 1 or framework in OWN
]
"""Frameworks and numbers of ranks."""


@pytest.fixture(scope="module")
def torn(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], list[Found]]:
    """What the scenario found of all strategies of a framework, in one launch for each number of ranks."""

    @functools.cache
    def found(framework: str, ranks: int) -> list[Found]:
        folder = tmp_path_factory.mktemp(f"{framework}-{ranks}")
        return run_scenario(framework, "consistency", folder, ranks=ranks, script=SCRIPT)

    return found


@pytest.mark.parametrize(
    ("framework", "strategy", "format", "ranks"),
    [(*pair, ranks) for pair in PAIRS for on, ranks in ON if on == pair[0]],
)
def test_every_version_is_the_state_of_its_step(
    torn: Callable[[str, int], list[Found]], framework: str, strategy: str, format: str, ranks: int
) -> None:
    for rank in torn(framework, ranks):
        found = {step: list(names) for step, names in part_of(rank, f"{strategy}/{format}").items()}
        assert found == {str(step): [] for step in range(1, SAVES + 1)}


@pytest.mark.parametrize(("framework", "ranks"), ON)
def test_an_update_that_does_not_wait_tears_every_version(
    torn: Callable[[str, int], list[Found]], framework: str, ranks: int
) -> None:
    """So the test above would notice it, in this framework and on so many ranks."""
    for rank in torn(framework, ranks):
        found = part_of(rank, UNAWAITED)
        assert found.keys() == {str(step) for step in range(1, SAVES + 1)}
        for names in found.values():
            assert {"weights", "momentum"} <= {group_of(str(name)) for name in names}


@pytest.mark.parametrize("framework", OWN)
def test_a_tensor_that_the_state_would_leave_out_is_refused(
    torn: Callable[[str, int], list[Found]], framework: str
) -> None:
    """A slot, a parameter or a layer that comes after the framework was built."""
    for rank in torn(framework, NUMBERS[0]):
        found = {kind: str(said) for kind, said in part_of(rank, STRANGE).items()}
        assert set(found) in [set(kinds) for kinds in STRANGERS.values()]
        for said in found.values():
            assert "no checkpoint would hold that" in said


@pytest.mark.parametrize(("framework", "ranks"), [on for on in ON if "tensorflow" in on[0]])
def test_a_compiled_step_writes_no_variable_before_it_has_called_the_hook(
    torn: Callable[[str, int], list[Found]], framework: str, ranks: int
) -> None:
    for rank in torn(framework, ranks):
        assert list(rank[TRACED]) == []

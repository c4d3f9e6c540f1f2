"""What a save in another thread was given: values by the path of their keys, as they were handed over."""

from __future__ import annotations

import functools
import sys
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ckptbench_probe.check.handed import Fixed, HandedOver
from ckptbench_probe.check.history import History
from ckptbench_probe.check.memory import Memory
from ckptbench_probe.check.state import Optimizers, digest
from ckptbench_probe.check.trees import leaves, names_of, paths
from ckptbench_probe.process import PROCESS


def test_names_are_paths_of_keys() -> None:
    value = {7: 1, "7": 2, "a": {"b": 3}, "a.b": 4, "x/y": 5, ("x", "y"): 6, "many": [1, 2], "deep": [[1], {"c": 7}]}  # fmt: skip
    found = dict(paths(value))
    assert len(found) == 9
    assert found[7,] == 1
    assert found["7",] == 2
    assert found["a", "b"] == 3
    assert found["a.b",] == 4
    assert found["many",] == [1, 2]
    assert found["deep", 1, "c"] == 7


def test_each_path_is_shown_by_another_text() -> None:
    some = [(7,), ("7",), ("a", "b"), ("a.b",), ("c", 0), ("c",)]
    shown = names_of(some)
    assert len(set(shown.values())) == len(some)
    assert (shown["7",], shown["a", "b"], shown["c", 0]) == ("['7']", "['a']['b']", "c.0")


def test_names_of_a_resume_do_not_collide_either() -> None:
    found = list(leaves({7: 1, "7": 2, "a": {"b": 3}, "a.b": 4, "c": [5]}, "w/"))
    assert len({name for name, _ in found}) == len(found) == 5
    assert ("w/c.0", 5) in found


class Handing:
    """A training whose optimizer has one weight, and what it hands over."""

    def __init__(self) -> None:
        self.weight = np.arange(32.0)
        self.step = np.array(1.0)
        self.optimizer = SimpleNamespace(
            param_groups=[{"params": [0]}], state={0: {"exp_avg": self.weight, "step": self.step}}
        )
        self.optimizers = Optimizers()
        self.tracked = Tracked(self.optimizer)
        self.optimizers.add(self.tracked)
        self.handed = HandedOver(self.optimizers, History(self.optimizers))

    def train(self) -> None:
        PROCESS.updates.written += 1
        self.weight += 1
        self.step += 1

    def given(self, value: Any) -> dict[Any, str]:
        return {
            path: one.digest if isinstance(one, Fixed) else digest(one)
            for path, one, _ in self.handed.parts(value)
        }


class Tracked:
    """An optimizer that can be referred to weakly."""

    def __init__(self, own: Any) -> None:
        self.param_groups, self.state = own.param_groups, own.state


@pytest.fixture
def training() -> Handing:
    return Handing()


def now(value: Any) -> dict[Any, str]:
    return {path: digest(one) for path, one in paths(value)}


@pytest.mark.parametrize("how", ["in a tuple", "as an attribute", "in a method", "in a closure", "in a partial"])  # fmt: skip
def test_what_training_changes_counts_as_it_was(how: str, training: Handing) -> None:
    state = {"weights": training.weight, "step": training.step, "seen": [1, 2], "it": 3}
    job = SimpleNamespace(state=state)
    item = {
        "in a tuple": (state, "file"),
        "as an attribute": job,
        "in a method": functools.partial(Job(state).write),
        "in a closure": lambda: state,
        "in a partial": functools.partial(print, state),
    }[how]
    training.handed.add([item])
    before = now(state)
    training.train()
    state["seen"].append(3)
    state["it"] = 4
    assert training.given(state) == before
    assert training.given(state) == now(state)  # a hand-over serves one save


class Job:
    def __init__(self, state: Any) -> None:
        self.state = state

    def write(self) -> None:
        """It would."""


def test_parts_of_what_was_handed_over_count_as_well(training: Handing) -> None:
    state = {"model": {"w": training.weight}, "it": 1}
    training.handed.add([state])
    before = now(state["model"])
    training.train()
    assert training.given({"again": state["model"]}) == {("again", *path): one for path, one in before.items()}  # fmt: skip


def test_one_dict_that_is_handed_over_again_and_again_serves_each_save(training: Handing) -> None:
    state = {"w": training.weight}
    seen = []
    for _ in range(3):
        training.train()
        training.handed.add([(state, "file")])
        seen.append(now(state))
    assert [training.given(state) for _ in range(3)] == seen


def test_a_pool_that_has_a_queue_hands_over_once(training: Handing) -> None:
    state = {"w": training.weight}
    training.handed.add([state])
    training.handed.add([(state,)])
    training.given(state)
    training.train()
    assert training.given(state) == now(state)


def test_an_added_key_is_no_change_of_what_was_given(training: Handing) -> None:
    """A thread may note when it saves."""
    state: dict[str, Any] = {"w": training.weight.copy()}
    training.handed.add([state])
    state["saved_at"] = 12.5
    assert training.given(state) == now(state)


def test_buffers_that_a_thread_fills_count_as_they_are(training: Handing) -> None:
    buffers = {"w": np.zeros(32)}
    training.handed.add([buffers])
    buffers["w"][:] = 5
    assert training.given(buffers) == now(buffers)


def test_nothing_is_kept_alive(training: Handing) -> None:
    copy = training.weight.copy()
    training.handed.add([{"w": copy}])
    assert sys.getrefcount(copy) == 2


def test_a_part_of_what_training_changes_lies_in_its_memory(training: Handing) -> None:
    memory = Memory(training.optimizers)
    assert memory.holds(training.weight[4:8])
    assert not memory.holds(training.weight[4:8].copy())
    assert not memory.holds("text")


def test_a_thread_that_was_not_handed_anything_gives_what_there_is(training: Handing) -> None:
    training.handed.add([threading.Event(), "text", 3])
    assert training.given({"w": training.weight}) == now({"w": training.weight})

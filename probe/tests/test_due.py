"""`Interval`: when it says that a save is due, on a clock of the test."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from concurrent.futures import Future
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ckptbench_probe import Interval
from ckptbench_probe.due import exchange
from ckptbench_probe.due.target import best_useful_s
from ckptbench_probe.variables import Seat

STEP_S = 1.0


README = Path(__file__).resolve().parents[1] / "README.md"


class Training:
    """Steps of a second. `cost_s`: of each save, in turn; the last one of all others. Saves in the background slow down steps by half."""

    def __init__(self, *cost_s: float, behind: int = 0, names: bool = False, **wanted: Any) -> None:
        self.now_s = 0.0
        self.when = Interval(clock=lambda: self.now_s, **wanted)
        self.saved: list[int] = []
        self.step, self.pace_s = 0, STEP_S
        self._costs_s = list(cost_s)
        self._behind, self._left, self._names = behind, 0, names
        self._future: Future[None] | None = None

    def run(self, steps: int, extra_s: float = 0.0) -> Training:
        """`extra_s`: of the first of these steps, as an evaluation."""
        for _ in range(steps):
            self.step += 1
            self.now_s += self.pace_s * (1.5 if self._left else 1.0) + extra_s
            self._left, extra_s = max(self._left - 1, 0), 0.0
            if self._future is not None and not self._left:
                self._future.set_result(None)
                self._future = None
            if self.when.due(self.step):
                self.save()
        return self

    def save(self) -> None:
        self.saved.append(self.step)
        self.now_s += self._costs_s[0]
        del self._costs_s[: len(self._costs_s) > 1]
        self._left = self._behind
        if self._names:
            self._future = self.when.saving(Future())


def intervals(saved: list[int]) -> list[int]:
    return [after - before for before, after in zip(saved, saved[1:])]


def test_after_some_steps_it_saves_once_to_learn_what_that_costs_then_at_the_best_interval() -> (
    None
):
    saved = Training(2.0, mtbf=5000.0).run(2000).saved
    best = round(best_useful_s(2.0, 5000.0))
    assert saved[0] == 16
    assert intervals(saved)[0] == round(best_useful_s(0.5, 5000.0))  # a first save costs more
    assert set(intervals(saved)[1:]) == {best} == {140}


def test_a_first_save_that_is_much_slower_than_the_others_counts_once() -> None:
    saved = Training(20.0, 2.0, mtbf=5000.0).run(2000).saved
    assert set(intervals(saved)[1:]) == {140}


def test_steps_in_milliseconds_give_the_first_save_time_to_compile() -> None:
    training = Training(0.1, mtbf=500.0)
    training.now_s = -1000.0  # nothing depends on where the clock begins
    for step in range(1, 100):
        training.now_s += 60.0 if step == 1 else 0.02
        if training.when.due(step):
            training.save()
    assert training.when.state_dict()["steps_s"][0] == pytest.approx(0.02)


def test_one_evaluation_beside_a_save_changes_nothing() -> None:
    training = Training(2.0, mtbf=5000.0).run(600)
    before = training.when.interval
    while training.step != training.saved[-1] or training.step < 700:
        training.run(1)
    training.run(1, extra_s=300.0).run(139)
    assert training.when.interval == before == 140


def test_evaluations_make_the_interval_shorter_in_steps_and_not_in_time() -> None:
    training = Training(2.0, mtbf=5000.0)
    for _ in range(200):
        training.run(9).run(1, extra_s=1.0)
    assert training.when.interval == pytest.approx(best_useful_s(2.0, 5000.0) / 1.1, rel=0.15)


def test_slower_steps_beside_a_save_are_part_of_its_cost() -> None:
    seen = Training(2.0, behind=20, mtbf=5000.0).run(3000).when.interval
    named = Training(2.0, behind=20, names=True, mtbf=5000.0).run(3000).when.interval
    best = best_useful_s(2.0 + 20 * 0.5, 5000.0)
    assert seen == pytest.approx(best, rel=0.03)
    assert named == pytest.approx(best, rel=0.03)


def test_steps_that_stay_slow_after_a_save_do_not_put_off_the_next_one_for_ever() -> None:
    training = Training(2.0, mtbf=5000.0).run(500)
    while training.saved[-1] != training.step:
        training.run(1)
    training.pace_s = 1.5
    assert max(intervals(training.run(3000).saved)) < 3 * 140
    assert training.when.interval == pytest.approx(140 / 1.5, abs=2)


def test_no_save_is_due_before_the_last_one_has_ended() -> None:
    training = Training(0.1, behind=100, names=True, mtbf=200.0, most=50.0).run(2000)
    assert min(intervals(training.saved)) > 100


@pytest.mark.parametrize("number", [1, 2])
def test_a_failed_save_in_the_background_has_ended_too(number: int) -> None:
    training = Training(1.0, mtbf=5000.0)
    while len(training.saved) < number:
        training.run(1)
    future: Future[None] = training.when.saving(Future())
    training.run(400)
    assert len(training.saved) == number
    future.set_exception(OSError("disk full"))
    training.run(200)
    assert len(training.saved) > number


def test_least_and_most_bound_the_time_between_two_saves() -> None:
    assert set(intervals(Training(2.0, mtbf=5000.0, most="1min").run(2000).saved)[1:]) == {58}
    assert set(intervals(Training(2.0, mtbf=5000.0, least="5min").run(2000).saved)) == {300}
    assert Training(2.0, mtbf=5000.0, least="5min").run(299).saved == []
    assert set(intervals(Training(2.0, most="10min").run(3000).saved)[1:]) == {598}


def test_a_rate_of_one_gpu_counts_the_ranks() -> None:
    assert set(intervals(Training(2.0, gpu_mtbf=40000.0, ranks=8).run(2000).saved)[1:]) == {140}


def test_asked_twice_of_a_step_it_says_the_same() -> None:
    training = Training(2.0, mtbf=5000.0).run(16)
    assert training.saved == [16]
    assert training.when.due(16) is True
    training.run(1)
    assert training.when.due(17) is False


def test_steps_may_be_counted_per_epoch_or_asked_for_now_and_then() -> None:
    """It counts what has passed since the last save."""
    epochs, strided = Interval(most=100.0, clock=lambda: now[0]), Interval(most=100.0, clock=lambda: now[0])  # fmt: skip
    now, saved = [0.0], [0, 0]
    for step in range(1000):
        now[0] += 1.0
        saved[0] += epochs.due(step % 50)
        saved[1] += step % 10 == 0 and strided.due(step)
    assert 9 <= saved[0] <= 11
    assert 9 <= saved[1] <= 11


def test_after_a_restart_it_goes_on_with_what_it_knows() -> None:
    before = Training(2.0, mtbf=5000.0).run(2000)
    state = json.loads(json.dumps(before.when.state_dict()))
    after = Training(2.0, mtbf=5000.0)
    after.when.load_state_dict(state)
    assert after.run(600).saved == [140, 280, 420, 560]


def test_a_state_of_before_the_first_cost_was_known_learns_it_anew() -> None:
    before = Training(2.0, mtbf=5000.0).run(16)
    after = Training(2.0, mtbf=5000.0)
    after.when.load_state_dict(before.when.state_dict())
    assert before.when.interval is None
    assert after.run(20).saved == [16]


@pytest.mark.parametrize(
    ("wanted", "line"),
    [
        ({}, 'mtbf is missing: say how often the job fails, as mtbf="14h", or most="30min"'),
        ({"mtbf": "14"}, "mtbf is '14': write a time as 90s, 8min, 14h or 2d"),
        ({"mtbf": -1}, "mtbf is -1: write a time as 90s, 8min, 14h or 2d"),
        ({"mtbf": "1h", "most": [3]}, "most is [3]: write a time as 90s, 8min, 14h or 2d"),
        ({"mtbf": "1h", "gpu_mtbf": "9h"}, "mtbf and gpu_mtbf are both given: give one"),
        ({"mtbf": "1h", "least": "2h", "most": "1h"}, "most is '1h', below least, '2h': exchange them"),
        ({"gpu_mtbf": "9h", "ranks": 0}, "ranks is 0: use a whole number from 1"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named(wanted: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"ckptbench_probe.Interval: {line}") + "$"):
        Interval(**wanted)


def test_another_state_and_what_is_no_future_are_named() -> None:
    with pytest.raises(ValueError, match="give it what state_dict\\(\\) returned"):
        Interval(mtbf="1h").load_state_dict({"step": 3})
    with pytest.raises(TypeError, match="needs a future with add_done_callback, not NoneType"):
        Interval(mtbf="1h").saving(None)


def test_all_ranks_save_at_the_steps_of_rank_0_and_keep_its_state() -> None:
    """The other rank's own clock would have it save at other steps."""
    plans: list[Any] = []
    first = Training(2.0, mtbf=5000.0, exchange=lambda plan: plans.append(plan) or plan)
    first.run(2000)
    told = iter(plans)
    other = Training(70.0, mtbf=5000.0, exchange=lambda plan: next(told)).run(2000)
    assert other.saved == first.saved
    assert other.when.state_dict() == first.when.state_dict()
    assert len(plans) == len(first.saved) + 2  # one a save, and two to know what a step takes


def test_ranks_that_nothing_joins_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "8")
    with pytest.raises(exchange.NotConnectedError, match=r"names 8 ranks, and this process is joined to none: .* or pass exchange="):  # fmt: skip
        Interval(mtbf="1h").due(1)


class Store:
    """As that of torch.distributed, in one process."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    def set(self, key: str, value: str) -> None:
        self._kept[key] = value.encode()

    def get(self, key: str) -> bytes:
        return self._kept[key]

    def check(self, keys: list[str]) -> bool:
        return all(key in self._kept for key in keys)


def test_a_store_that_outlives_a_restart_gives_no_plan_of_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As torchrun's does: the second rank could take a plan before rank 0 has made one."""
    monkeypatch.setattr(exchange, "LONGEST_WAIT_S", 0.01)
    store = Store()
    for plan in ({"next": 5}, {"next": 70}):
        monkeypatch.setattr(exchange, "_NUMBERS", iter([0, 0]))  # a process of its own each
        of_0, of_1 = (exchange.by_store(store, Seat(rank, 2)) for rank in (0, 1))
        with pytest.raises(exchange.NotConnectedError, match=r"rank 1 waited .* call due\(\) on all ranks"):  # fmt: skip
            of_1({"next": 3})
        assert of_0(plan) == of_1({"next": 3}) == plan


def test_rank_0_may_save_alone() -> None:
    alone = exchange.by_store(Store(), Seat(0, 8))
    assert Training(2.0, mtbf=5000.0, exchange=alone).run(30).saved == [16]


def test_mpi4py_joins_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    class World:
        def Dup(self) -> World:  # noqa: N802
            return self

        def Get_size(self) -> int:  # noqa: N802
            return 2

        def bcast(self, plan: Any) -> Any:
            return {**plan, "next": 1, "look": None}

    module: Any = ModuleType("mpi4py.MPI")
    module.Is_initialized, module.COMM_WORLD = (lambda: True), World()
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", module)
    assert Training(1.0, mtbf="1h").run(8).saved == [8]


def test_pending_work_of_a_gpu_is_waited_for_before_the_clock_is_read_around_a_save(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Programs run ahead of a GPU. Here steps take no time until something waits for them."""
    training = Training(2.0, mtbf=5000.0)
    behind = [0]

    def wait() -> None:
        training.now_s += STEP_S * behind[0]
        behind[0] = 0

    monkeypatch.setitem(sys.modules, "torch.cuda", SimpleNamespace(is_initialized=lambda: True, synchronize=wait))  # type: ignore[arg-type]  # fmt: skip
    saved = []
    for step in range(1, 2000):
        behind[0] += 1
        if behind[0] > 5:  # as far as it runs ahead
            behind[0] -= 1
            training.now_s += STEP_S
        if training.when.due(step):
            wait()
            saved.append(step)
            training.now_s += 2.0
    assert set(intervals(saved)[1:]) == {140}


def test_the_lines_of_the_readme_save() -> None:
    (shown,) = re.findall(r"(?:^    .*\n)+", README.read_text(encoding="utf-8").partition("compare --value")[2], re.MULTILINE)  # fmt: skip
    saved: list[int] = []
    names = {"batches": range(30), "train": lambda batch: None, "save": lambda step, state: saved.append(step)}  # fmt: skip
    exec(textwrap.dedent(shown), names)
    assert saved[0] in (16, 24)

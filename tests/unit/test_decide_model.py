"""Goodput as a function of the interval, against closed forms and special cases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import lambertw

from ckptbench.decide.costs import ONE_LEVEL, GlobalTier, Recovering, Saving
from ckptbench.decide.formulas import daly_s, saxena_s, young_s
from ckptbench.decide.model import Best, best, goodput, rounded
from tests.study.selection import FULL

HOUR = 3600.0
BLOCKING = Saving(stall_s=20.0, durable_s=20.0)
FREE = Saving(stall_s=0.0, durable_s=0.0)
RESTART = Recovering(down_s=300.0)
RATES = np.array([1 / (100 * HOUR), 1 / HOUR, 1 / 600])


def test_without_failures_only_the_checkpoints_cost_time() -> None:
    assert goodput(180.0, BLOCKING, RESTART, 0.0) == pytest.approx(0.9)


def test_a_blocking_checkpoint_costs_what_daly_says() -> None:
    """Daly 2006, equation 20: M e^(R/M) (e^((I + C)/M) - 1) for an interval I, with M seconds between failures."""
    between = 1 / RATES
    for interval in (60.0, 1000.0, 20_000.0):
        takes = between * np.exp(300 / between) * np.expm1((interval + 20) / between)
        assert goodput(interval, BLOCKING, RESTART, RATES) == pytest.approx(interval / takes)


def test_the_best_interval_is_that_of_the_closed_form() -> None:
    """The maximum of I / (e^(λ(I + C)) - 1) is at (1 + W(-e^(-1 - λC))) / λ, with Lambert's function."""
    exact = (1 + lambertw(-np.exp(-1 - RATES * 20)).real) / RATES
    found = best(BLOCKING, RESTART, RATES, step_s=0.01)
    assert found.interval_s == pytest.approx(exact, abs=0.02)
    assert found.goodput == pytest.approx(goodput(exact, BLOCKING, RESTART, RATES))


def brute_force(saving: Saving, recovering: Recovering, rate: float, step_s: float, global_tier: GlobalTier | None) -> Best:  # fmt: skip
    """By trying all whole numbers of steps up to so many that the interval is far beyond the best one."""
    steps = np.arange(1.0, max(2.0, 12 / rate / step_s))
    useful = goodput(steps * step_s, saving, recovering, rate, global_tier)
    # Free saves at all times leave the restarts alone.
    second = global_tier and replace(global_tier, saving=FREE)
    avoidable = goodput(1e-3, FREE, recovering, rate, second) - useful.max()
    fine = steps[useful >= useful.max() - min(avoidable / 5, 0.01)]
    at = useful.argmax()
    return Best(steps=steps[at], interval_s=steps[at] * step_s, goodput=useful[at], fine_from_steps=fine[0], fine_to_steps=fine[-1])  # fmt: skip


def anything(
    rng: np.random.Generator,
) -> tuple[Saving, Recovering, float, float, GlobalTier | None]:
    """Costs of any size, in any proportion: saves that wait for one another, second levels, survivors, slower steps."""

    def between(least: float, most: float) -> float:
        return float(np.exp(rng.uniform(np.log(least), np.log(most))))

    mean_s = between(600, 1e6)
    stall_s, needed = between(0.01, 600), rng.random()
    saving = Saving(
        stall_s=stall_s,
        durable_s=stall_s * between(1, 30) ** rng.integers(2),
        slowdown_s=between(0.01, 300) * rng.integers(2),
    )
    survived = rng.random() * rng.integers(2)
    recovering = Recovering(
        down_s=between(1, 1000), survived=survived, pause_s=min(between(1, 3600), 0.95 * mean_s)
    )
    written = Saving(stall_s=between(0.01, 60) * rng.integers(2), durable_s=saving.durable_s * between(1, 5))  # fmt: skip
    global_tier = GlobalTier(saving=written, every=int(rng.integers(1, 20)), needed=needed, down_s=between(1, 1000))  # fmt: skip
    step_s = max(between(0.1, 60), 12 * mean_s / 200_000)
    return saving, recovering, 1 / mean_s, step_s, global_tier if rng.random() < 0.5 else None


@pytest.mark.parametrize("seed", range(200 if FULL else 20))
def test_the_best_and_the_fine_steps_are_those_of_all_whole_numbers(seed: int) -> None:
    saving, recovering, rate, step_s, global_tier = anything(np.random.default_rng(seed))
    found = best(saving, recovering, rate, step_s=step_s, global_tier=global_tier)
    tried = brute_force(saving, recovering, rate, step_s, global_tier)
    # Rounding may prefer a neighbour where goodput is flat.
    assert found.goodput == pytest.approx(tried.goodput, rel=1e-13)
    assert found.goodput == goodput(found.interval_s, saving, recovering, rate, global_tier)
    assert found.steps == pytest.approx(tried.steps, rel=1e-4)
    if tried.goodput < 0.5:
        assert np.isnan([found.fine_from_steps, found.fine_to_steps]).all()
    else:
        assert found.fine_from_steps == pytest.approx(tried.fine_from_steps, rel=1e-4)
        assert found.fine_to_steps == pytest.approx(tried.fine_to_steps, rel=1e-4)


def test_the_best_step_is_not_the_one_nearest_to_where_a_save_begins_to_wait() -> None:
    """12 s until durable, and steps of 8.4 s: goodput is highest after 1.43 steps, every step waits 3.6 s, and every second one never."""
    waits = Saving(stall_s=0.01, durable_s=12.0)
    found = best(waits, RESTART, 1 / 2400, step_s=8.4)
    one, two = goodput(np.array([8.4, 16.8]), waits, RESTART, 1 / 2400)
    assert two - one > 0.2
    assert (found.steps, found.goodput, found.fine_from_steps) == (2, two, 2)


def test_where_even_the_best_interval_loses_more_than_half_none_is_fine() -> None:
    down = np.array([330.0, 370.0])  # of 512 s between failures
    found = best(BLOCKING, Recovering(down_s=down), 1 / 1024, step_s=1.0)
    lost_most = best(BLOCKING, Recovering(down_s=1000.0), 1 / 1024, step_s=1.0)
    assert (found.goodput > 0.5).all()
    assert np.isfinite([found.fine_from_steps, found.fine_to_steps]).all()
    assert lost_most.goodput < 0.5
    assert np.isnan([lost_most.fine_from_steps, lost_most.fine_to_steps]).all()


@pytest.mark.parametrize(
    ("down_s", "mtbf_s", "is_a_point"),
    [(480.0, 14 * HOUR, False), (2 * HOUR, 14 * HOUR, False), (1800.0, 3.1 * HOUR, True)],
)
def test_fine_is_a_fifth_of_what_an_interval_can_avoid_and_at_most_a_point(
    down_s: float, mtbf_s: float, is_a_point: bool
) -> None:
    """Not of the restarts, which come at any interval and take 1 - e^(-R / M) of the time."""
    saving, recovering = Saving(stall_s=60.0, durable_s=60.0), Recovering(down_s=down_s)
    found = best(saving, recovering, 1 / mtbf_s, step_s=2.5)
    ends = np.array([found.fine_from_steps, found.fine_to_steps]) * 2.5
    more = found.goodput - goodput(ends, saving, recovering, 1 / mtbf_s)
    most = 0.01 if is_a_point else (np.exp(-down_s / mtbf_s) - found.goodput) / 5
    assert most <= 0.01
    assert more == pytest.approx([most, most], rel=0.02)
    assert (more <= most).all()


def test_where_no_failure_ends_training_the_longest_interval_is_the_best() -> None:
    elastic = Recovering(down_s=300.0, survived=1.0, pause_s=36.0)
    assert best(BLOCKING, elastic, 1 / 512, step_s=1.0).steps == 50 * 512
    assert best(BLOCKING, elastic, 1e-30, step_s=1.0).fine_to_steps == 1e12


def test_slower_steps_are_a_part_of_what_is_lost() -> None:
    plain = best(BLOCKING, RESTART, RATES[0], step_s=1.0)
    slow = best(BLOCKING, RESTART, RATES[0], step_s=1.0, slower=1.25)
    assert slow.steps == plain.steps
    assert slow.goodput == pytest.approx(plain.goodput / 1.25)
    # No interval can avoid them.
    assert (slow.fine_from_steps, slow.fine_to_steps) == (plain.fine_from_steps, plain.fine_to_steps)  # fmt: skip


def test_the_fine_range_may_be_left_out() -> None:
    found = best(BLOCKING, RESTART, RATES, step_s=1.0, fine=False)
    assert np.isnan([found.fine_from_steps, found.fine_to_steps]).all()


def test_the_old_formulas_are_near_the_best_interval_where_failures_are_rare() -> None:
    rare = RATES[0]
    found = best(BLOCKING, RESTART, rare, step_s=0.1).interval_s
    assert young_s(20.0, rare) == pytest.approx(np.sqrt(2 * 20 * 100 * HOUR))
    assert daly_s(20.0, rare) == pytest.approx(found, rel=1e-4)
    assert young_s(20.0, rare) == pytest.approx(found, rel=0.01)
    assert saxena_s(20.0, 300.0, rare) == pytest.approx(found, rel=0.01)


def test_daly_gives_the_time_between_failures_where_a_checkpoint_takes_twice_as_long() -> None:
    assert daly_s(1200.0, 1 / 600) == 600


def test_saxena_has_the_best_availability() -> None:
    """Availability is (1 - C / T) M / (M + R + T / 2), with the time T from one save to the next."""
    rate, down, cost = RATES[1], 300.0, 20.0
    period = saxena_s(cost, down, rate) + cost

    def availability(period: float) -> float:
        return (1 - cost / period) / (1 / rate + down + period / 2)

    assert availability(period) > availability(period * 1.001)
    assert availability(period) > availability(period * 0.999)


def test_a_version_that_is_durable_later_costs_as_much_as_a_longer_recovery() -> None:
    late = Saving(stall_s=20.0, durable_s=80.0)
    slow = Recovering(down_s=360.0)
    assert goodput(900.0, late, RESTART, RATES) == pytest.approx(goodput(900.0, BLOCKING, slow, RATES))  # fmt: skip


def test_the_first_save_after_a_failure_waits_for_none_before() -> None:
    """Where saves wait for each other: T = (e^(λL) - 1) / λ · (1 + λR) e^(λg), and after a failure L + g = I + d."""
    behind, interval = Saving(stall_s=1.0, durable_s=400.0), 100.0
    recovery = np.expm1(RATES * 300) / RATES
    takes = np.exp(RATES * 100) * (1 + RATES * recovery) * np.expm1(RATES * 400) / RATES
    assert goodput(interval, behind, RESTART, RATES) == pytest.approx(interval / takes)


def test_a_save_waits_for_the_one_before() -> None:
    behind = Saving(stall_s=1.0, durable_s=100.0, slowdown_s=4.0)
    assert goodput(50.0, behind, RESTART, 0.0) == pytest.approx(0.5)
    assert goodput(195.0, behind, RESTART, 0.0) == pytest.approx(195 / 200)
    assert best(behind, RESTART, 1e-9, step_s=1.0).interval_s > 95


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 3.0])
@pytest.mark.parametrize("saving", [BLOCKING, Saving(stall_s=2.0, durable_s=90.0, slowdown_s=10.0), Saving(stall_s=2.0, durable_s=400.0)])  # fmt: skip
def test_survivors_pause_as_the_fixed_point_says(saving: Saving, part: float) -> None:
    """With B = e^(-(λf + λv (1 - B)) P) by Lambert's function, of which B is -W(-λv P e^(-(λf + λv) P)) / (λv P)."""
    rate, down_s, interval_s = 1 / 600, 60.0, 240.0
    ending, pausing, pause_s = 0.1 * rate, 0.9 * rate, part * 600.0
    a = pausing * pause_s
    unended = -lambertw(-a * np.exp(-rate * pause_s)).real / a
    theta = ending + pausing * (1 - unended)
    recovery_s = np.expm1(rate * down_s) / rate
    period_s = np.asarray(saving.period_s(interval_s))
    lag_s = interval_s + saving.durable_s - period_s
    exact = interval_s * np.exp(-ending * lag_s) / (np.expm1(theta * period_s) * (1 / ending + recovery_s))  # fmt: skip
    elastic = Recovering(down_s=down_s, survived=0.9, pause_s=pause_s)
    assert goodput(interval_s, saving, elastic, rate) == pytest.approx(exact, rel=1e-12)


def test_failures_that_survivors_go_on_from_take_only_their_pause() -> None:
    elastic = Recovering(down_s=300.0, survived=1.0, pause_s=36.0)
    assert goodput(180.0, BLOCKING, elastic, 1 / HOUR) == pytest.approx(0.9 * 0.99)
    assert goodput(180.0, BLOCKING, elastic, 1 / 36) == pytest.approx(0, abs=1e-99)


def test_a_recovery_that_never_ends_does_not_matter_where_survivors_always_go_on() -> None:
    endless = Recovering(down_s=1e9, survived=1.0, pause_s=36.0)
    assert goodput(180.0, BLOCKING, endless, 1 / HOUR) == pytest.approx(0.9 * 0.99)
    global_tier = GlobalTier(
        saving=Saving(stall_s=0.0, durable_s=0.0), every=4, needed=0.0, down_s=1e9
    )
    assert goodput(180.0, BLOCKING, endless, 1 / HOUR, global_tier) == pytest.approx(0.9 * 0.99)
    half = replace(endless, survived=0.5)
    assert goodput(180.0, BLOCKING, half, 1 / HOUR) == pytest.approx(0, abs=1e-99)


def test_a_second_level_that_no_failure_needs_costs_only_its_saves() -> None:
    global_tier = GlobalTier(
        saving=Saving(stall_s=0.0, durable_s=0.0), every=4, needed=0.0, down_s=1e6
    )
    assert goodput(900.0, BLOCKING, RESTART, RATES, global_tier) == pytest.approx(goodput(900.0, BLOCKING, RESTART, RATES))  # fmt: skip


def test_a_second_level_that_every_failure_needs_is_one_level_with_a_longer_interval() -> None:
    none = Saving(stall_s=0.0, durable_s=0.0)
    global_tier = GlobalTier(
        saving=Saving(stall_s=20.0, durable_s=20.0), every=4, needed=1.0, down_s=300.0
    )
    two, one = (
        goodput(225.0, none, RESTART, RATES, global_tier),
        goodput(900.0, BLOCKING, RESTART, RATES),
    )
    assert two == pytest.approx(one)


@pytest.mark.parametrize("needed", [1e-3, 0.5, 1.0])
def test_failures_that_need_the_second_level_lose_half_its_interval_where_they_are_rare(
    needed: float,
) -> None:
    none, rate = Saving(stall_s=0.0, durable_s=0.0), 1e-9
    global_tier = GlobalTier(saving=none, every=10, needed=needed, down_s=300.0)
    lost = 1 - goodput(60.0, none, RESTART, rate, global_tier)
    # Half of a period, or of one of the periods from version to version of the second level.
    expected = rate * (300.0 + (1 - needed) * 30.0 + needed * 300.0)
    assert lost == pytest.approx(expected, rel=1e-5)


def test_the_lag_of_the_second_level_begins_where_the_stall_ends() -> None:
    """A version that is durable at once on both levels has no lag, however long its save blocked training."""
    blocking = Saving(stall_s=60.0, durable_s=60.0)
    global_tier = GlobalTier(
        saving=Saving(stall_s=0.0, durable_s=60.0), every=1, needed=1.0, down_s=300.0
    )
    two, one = goodput(900.0, blocking, RESTART, RATES, global_tier), goodput(900.0, blocking, RESTART, RATES)  # fmt: skip
    assert two == pytest.approx(one)


@pytest.mark.parametrize("seed", range(20))
def test_one_level_has_the_goodput_of_two_of_which_the_second_is_not_needed(seed: int) -> None:
    """To the last digit: one level is computed by a shorter formula."""
    saving, recovering, rate, step_s, _ = anything(np.random.default_rng(seed))
    interval_s = step_s * np.geomspace(1.0, 1e6, 50)
    told = goodput(interval_s, saving, recovering, rate)
    assert (told == goodput(interval_s, saving, recovering, rate, ONE_LEVEL)).all()


@pytest.mark.parametrize("seed", range(20 if FULL else 2))
@np.errstate(divide="raise", over="raise", invalid="raise")
def test_goodput_of_any_costs_is_a_number_from_0_to_1(seed: int) -> None:
    """Costs from none to a lifetime, also together: some fail in every step, some never; slower steps of a day, pauses without end."""
    rng, size = np.random.default_rng(seed), 20_000

    def cost(least: float = 0.0) -> np.ndarray:
        own = np.exp(rng.uniform(np.log(1e-9), np.log(1e9), size))
        return np.maximum(np.where(rng.random(size) < 0.1, 0.0, own), least)

    def part() -> np.ndarray:
        return np.clip(rng.uniform(-0.3, 1.3, size), 0.0, 1.0)

    stall_s, global_stall_s = cost(), cost()
    useful = goodput(
        cost(1e-9),
        Saving(stall_s=stall_s, durable_s=np.maximum(stall_s, cost()), slowdown_s=cost()),
        Recovering(
            down_s=cost(), survived=part(), pause_s=cost(), announced=part(), notice_s=cost()
        ),
        cost(),
        GlobalTier(
            saving=Saving(stall_s=global_stall_s, durable_s=np.maximum(global_stall_s, cost()), slowdown_s=cost()),
            every=rng.integers(1, 10**6, size),
            needed=part(),
            down_s=cost(),
        ),
    )  # fmt: skip
    assert ((useful >= 0) & (useful <= 1)).all()


@pytest.mark.parametrize("slowdown_s", [1e2, 1e5, 1e7])
def test_steps_that_are_slower_for_longer_than_failures_are_apart_leave_little(slowdown_s: float) -> None:  # fmt: skip
    """Their version is durable long before its period ends. The time lost to them is the same before and after it."""
    slow = Saving(stall_s=2.0, durable_s=90.0, slowdown_s=slowdown_s)
    found = best(slow, RESTART, 1 / HOUR, step_s=2.5)
    assert found.goodput == goodput(found.interval_s, slow, RESTART, 1 / HOUR)
    # From failure to failure, at most one version is of use, unless the slower steps are short beside that.
    once = found.interval_s * np.exp(-(found.interval_s + 90) / HOUR) / (HOUR + HOUR * np.expm1(300 / HOUR))  # fmt: skip
    assert found.goodput >= once * (1 - 1e-12)
    assert slowdown_s < HOUR or found.goodput == pytest.approx(once, rel=1e-6)


def test_the_example_of_the_command() -> None:
    """256 GPUs, 14 h between failures of the job, steps of 2.5 s, 8 min until training goes on; a checkpoint every 2 h now."""
    recovering, rate = Recovering(down_s=480.0), 1 / (14 * HOUR)
    blocking = Saving(stall_s=60.0, durable_s=60.0)
    behind = Saving(stall_s=3.0, durable_s=3.0 + 90.0)
    now = goodput(2 * HOUR, blocking, recovering, rate)
    assert round(100 * float(1 - now), 1) == 8.7
    shown = []
    for saving in (blocking, behind):
        found = best(saving, recovering, rate, step_s=2.5)
        minutes = [round(float(steps) * 2.5 / 60, 1) for steps in (found.steps, found.fine_from_steps, found.fine_to_steps)]  # fmt: skip
        lost = round(100 * float(1 - found.goodput), 1)
        saved = round(256 * 24 * float(found.goodput - now))
        shown.append((int(found.steps), *minutes, lost, saved))
    assert shown == [(968, 40.3, 21.2, 76.2, 5.7, 182), (219, 9.1, 4.7, 17.9, 2.2, 398)]


def test_arrays_of_inputs_are_broadcast() -> None:
    stalls = np.linspace(1, 30, 7)[:, None]
    found = best(Saving(stall_s=stalls, durable_s=stalls), RESTART, RATES, step_s=1.0)
    alone = best(Saving(stall_s=30.0, durable_s=30.0), RESTART, RATES[1], step_s=1.0)
    for name in ("steps", "interval_s", "goodput", "fine_from_steps", "fine_to_steps"):
        assert getattr(found, name).shape == (7, 3)
        assert getattr(found, name)[-1, 1] == getattr(alone, name)


@pytest.mark.parametrize(
    ("steps", "fine", "multiple_of", "told"),
    [(968, (480, 1938), None, 1000), (219, (91, 528), None, 200), (1609, (900, 3000), None, 1600), (1609, (900, 3000), 500, 1500),
     (968, (480, 1938), 4000, 1000), (37, (36, 38), None, 37), (7, (5, 9), None, 7), (1, (1, 2), None, 1), (3, (2, 5), 10, 3), (968, (np.nan, np.nan), 500, 968)],
)  # fmt: skip
def test_a_round_number_of_steps_is_fine(
    steps: int, fine: tuple[float, float], multiple_of: int | None, told: int
) -> None:
    assert rounded(steps, fine, multiple_of) == told


def test_no_interval_is_shorter_than_a_step() -> None:
    free = Saving(stall_s=0.0, durable_s=0.0)
    found = best(free, RESTART, 1 / HOUR, step_s=2.0)
    assert (found.steps, found.interval_s, found.fine_from_steps) == (1, 2, 1)


@pytest.mark.parametrize("needed", [0.1, 0.2, 0.3, 0.45, 1.0])
def test_where_each_period_fails_two_levels_have_no_goodput(needed: float) -> None:
    """Rounding must not make the part that falls back more than all."""
    global_tier = GlobalTier(
        saving=Saving(stall_s=0.0, durable_s=90.0), every=6, needed=needed, down_s=300.0
    )
    assert goodput(40 * HOUR, BLOCKING, RESTART, 1 / HOUR, global_tier) == pytest.approx(
        0, abs=1e-9
    )
    found = best(BLOCKING, RESTART, 1 / HOUR, step_s=1.0, global_tier=global_tier)
    assert 60 < found.interval_s < HOUR
    assert 0.5 < found.goodput < 1

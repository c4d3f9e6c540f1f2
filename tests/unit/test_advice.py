"""The tables of the decision: what the model says of each row of costs, with intervals."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_given_costs import EXAMPLE

from ckptbench.config.decision import DecisionSection
from ckptbench.decide import inputs, sampling
from ckptbench.decide.advice import ADVICE, GOODPUT_CURVES, SCALE, advice, goodput_curves, scale
from ckptbench.decide.costs import GlobalTier, Recovering, Saving
from ckptbench.decide.decision import decide
from ckptbench.decide.inputs import DECISION_COSTS
from ckptbench.decide.model import best, goodput
from ckptbench.decide.rates import FailureRate, rate_of_job, read_rates
from ckptbench.decide.user_costs import read_user_costs

FAILURES = Path(__file__).resolve().parents[2] / "config" / "failures"
RATES = read_rates(FAILURES)
(LLAMA,) = (rate for rate in RATES if rate.name == "llama3")
CHOICES = DecisionSection(gpus=[1024, 16384])
COSTS = read_user_costs(EXAMPLE)


@pytest.fixture(scope="module")
def told() -> pd.DataFrame:
    return advice(COSTS, [LLAMA], CHOICES)


def one(frame: pd.DataFrame, strategy: str, recovery: str, gpus: int) -> pd.Series:
    own = (frame["strategy"] == strategy) & (frame["recovery"] == recovery) & (frame["gpus"] == gpus)  # fmt: skip
    return frame[own].iloc[0]


def test_the_best_interval_is_that_of_the_model(told: pd.DataFrame) -> None:
    row = one(told, "asynchronous", "restart", 16384)
    saving = Saving(stall_s=2.0, durable_s=90.0, slowdown_s=4.0)
    recovering = Recovering(down_s=600.0)
    rate = 16384 / (LLAMA.mean_gpu_hours * 3600)
    found = best(saving, recovering, rate, step_s=2.5)
    assert row["best_minutes"] == pytest.approx(float(found.interval_s) / 60)
    assert row["best_steps"] == found.steps
    assert row["goodput"] == pytest.approx(float(found.goodput))
    assert row["fine_from_steps"] == found.fine_from_steps
    assert row["fine_to_steps"] == found.fine_to_steps
    assert row["fine_from_minutes"] == pytest.approx(float(found.fine_from_steps) * 2.5 / 60)
    assert row["fine_to_minutes"] == pytest.approx(float(found.fine_to_steps) * 2.5 / 60)
    assert row["goodput_in_use"] == pytest.approx(float(goodput(1250.0, saving, recovering, rate)))
    today = told[told["today"] & (told["gpus"] == 16384)].iloc[0]
    assert (today["strategy"], today["recovery"]) == ("torch.save", "restart"), (
        "the first of the file, for all rows"
    )
    assert row["saved_gpu_hours"] == pytest.approx(24 * 16384 * (row["goodput"] - today["goodput_in_use"]))  # fmt: skip
    assert row["saved_gpu_hours_lo"] < row["saved_gpu_hours"] < row["saved_gpu_hours_hi"]
    assert row["hours_between_failures"] == pytest.approx(LLAMA.mean_gpu_hours / 16384)


def test_time_that_a_recovery_slows_steps_down_by_is_not_useful(told: pd.DataFrame) -> None:
    usual = one(told, "asynchronous", "restart", 16384)
    slow = COSTS.assign(slower=1.25)
    row = one(advice(slow, [LLAMA], CHOICES), "asynchronous", "restart", 16384)
    assert row["goodput"] == pytest.approx(usual["goodput"] / 1.25)
    assert row["best_minutes"] == pytest.approx(usual["best_minutes"])
    assert row["best_steps"] == pytest.approx(usual["best_steps"] / 1.25, rel=0.01)


@pytest.mark.parametrize(("name", "times"), [("rarer", 1 / 3), ("oftener", 3)])
def test_another_rate_gives_what_the_chosen_one_would_give_then(
    told: pd.DataFrame, name: str, times: float
) -> None:
    other = replace(LLAMA, mean_gpu_hours=LLAMA.mean_gpu_hours / times)
    slow = COSTS.assign(slower=1.25)
    wanted, known = (advice(slow, [rate], CHOICES) for rate in (other, LLAMA))
    assert list(known[f"best_minutes_{name}"]) == pytest.approx(list(wanted["best_minutes"]))
    assert list(known[f"goodput_{name}"]) == pytest.approx(list(wanted["goodput"]))


@pytest.mark.parametrize(
    ("value", "lo", "hi"),
    [(4.0, 2.0, 8.0), (4.0, 3.0, 20.0), (4.0, -1.0, 9.0), (0.0, 0.0, 2.0), (5.0, 5.0, 6.0)],
)
def test_draws_have_the_interval_that_was_given(value: float, lo: float, hi: float) -> None:
    row = {**COSTS.iloc[0], "down_s": value, "down_s_lo": lo, "down_s_hi": hi}
    down_s = sampling.recovering(row, 8, CHOICES).down_s
    assert down_s[0] == value
    assert (down_s >= 0).all()
    assert np.median(down_s[1:]) == pytest.approx(value, abs=0.1 * (hi - lo))
    ends = np.percentile(down_s[1:], [2.5, 97.5])
    assert ends == pytest.approx([max(lo, 0.0), hi], abs=0.15 * (hi - lo))


@pytest.mark.parametrize(
    ("value", "lo", "hi"), [(4.0, 3.9, 20.0), (3.0, -7.0, 46.0), (-1.0, -4.0, 2.0)]
)
def test_draws_of_a_slowdown_have_both_sides_of_its_interval_and_none_below_zero(
    value: float, lo: float, hi: float
) -> None:
    row = {**COSTS.iloc[0], "slowdown_s": value, "slowdown_s_lo": lo, "slowdown_s_hi": hi}
    slowdown_s = np.asarray(sampling.saving(row).slowdown_s)
    assert slowdown_s[0] == max(value, 0.0)
    ends = np.percentile(slowdown_s[1:], [2.5, 97.5])
    assert ends == pytest.approx([max(lo, 0.0), hi], abs=0.15 * (hi - lo))


def test_a_pause_in_which_fewer_ranks_are_faster_is_none() -> None:
    row = {**COSTS.iloc[0], "pause_s": -3.0, "pause_s_lo": math.nan, "pause_s_hi": math.nan}
    assert (sampling.pause_s(row) == 0).all()


def test_the_part_that_survivors_go_on_from_is_as_uncertain_as_its_count() -> None:
    """One of one says little: its exact interval (Clopper and Pearson) is [0.025, 1]. That of 90 of 100 is [0.82, 0.95]."""
    row = COSTS[COSTS["recovery"] == "shrink"].iloc[0]
    few, many = (
        sampling.survived({**row, "survived": part, "survived_of": number})
        for part, number in ((1.0, 1), (0.9, 100))
    )
    assert few[0] == 1.0
    assert np.percentile(few[1:], 2.5) < 0.25
    assert many[0] == 0.9
    assert np.percentile(many[1:], [2.5, 97.5]) == pytest.approx([0.83, 0.95], abs=0.02)
    assert (sampling.survived(row) == 1.0).all()


def test_an_interval_of_an_answer_holds_95_percent_of_what_it_follows_from() -> None:
    row = advice(COSTS, [LLAMA], CHOICES).iloc[0]
    hours = [row[f"hours_between_failures{end}"] for end in ("_lo", "_hi")]
    assert hours == pytest.approx([LLAMA.lo / row["gpus"], LLAMA.hi / row["gpus"]], rel=0.03)


def test_options_of_a_recovery_share_what_its_steps_take_longer() -> None:
    known = {**COSTS.iloc[0], "slower": 1.2, "slower_lo": 1.1, "slower_hi": 1.3}
    one_row, other = ({**known, "recovery": name} for name in ("ulfm", "ulfm replace=true"))
    assert (sampling.slower(one_row) == sampling.slower(other)).all()


def test_stall_and_durable_time_are_drawn_together_as_far_as_the_stall_is_a_part_of_that_time() -> None:  # fmt: skip
    ends = {"stall_s_lo": 9.0, "stall_s_hi": 11.0, "durable_s_lo": 9.5, "durable_s_hi": 11.5}
    row = {**COSTS.iloc[0], "stall_s": 10.0, "durable_s": 10.5, **ends}
    for durable_s in (10.0, 10.5, 20.0, 90.0):
        own = {"durable_s": durable_s, "durable_s_lo": 0.95 * durable_s, "durable_s_hi": 1.05 * durable_s}  # fmt: skip
        saving = sampling.saving({**row, **own})
        together = np.corrcoef(saving.stall_s, saving.durable_s)[0, 1]
        assert together == pytest.approx(10 / durable_s, abs=0.1)
        assert np.percentile(saving.stall_s[1:], [2.5, 97.5]) == pytest.approx([9, 11], abs=0.05)


def test_an_elastic_recovery_waits_for_a_replacement_and_survives_only_failures_of_one_node(
    told: pd.DataFrame,
) -> None:
    row = one(told, "asynchronous", "shrink", 1024)
    assert row["survived"] == pytest.approx(sampling.SURVIVABLE)
    recovering = Recovering(
        down_s=600.0, survived=sampling.SURVIVABLE, pause_s=40.0 + 3600 * 8 / 1024
    )
    saving = Saving(stall_s=2.0, durable_s=90.0, slowdown_s=4.0)
    found = best(saving, recovering, 1024 / (LLAMA.mean_gpu_hours * 3600), step_s=2.5)
    assert row["goodput"] == pytest.approx(float(found.goodput))


@pytest.mark.parametrize(("gpus", "lost"), [(2, 1), (8, 1), (9, 8), (800, 8)])
def test_a_node_is_lost_where_there_are_several_and_else_a_gpu(gpus: int, lost: int) -> None:
    row = COSTS[COSTS["recovery"] == "shrink"].iloc[0]
    recovering = sampling.recovering(row, gpus, CHOICES)
    assert np.asarray(recovering.pause_s)[0] == 40.0 + 3600 * lost / gpus


def test_the_parts_that_no_study_measures_are_those_of_llama_3() -> None:
    """Grattafiori et al. 2024, table 5: 419 interruptions, of which software, network switches and cables, and timeouts are not of one node."""
    assert round(1 - (54 + 35 + 7) / 419, 2) == sampling.SURVIVABLE
    assert DecisionSection().gpus_per_node == 8


def test_steps_that_are_slower_for_a_day_are_no_fault(tmp_path: Path) -> None:
    text = EXAMPLE.read_text(encoding="utf-8").replace("slowdown_s: 4", "slowdown_s: 100000")
    costs = tmp_path / "costs.yaml"
    costs.write_text(text, encoding="utf-8")
    told = advice(read_user_costs(costs), [LLAMA], CHOICES)
    for name in ("goodput", "goodput_lo", "goodput_hi", "goodput_in_use"):
        assert told[name].between(0, 1).all()


def test_failures_of_a_node_fall_back_to_the_shared_level_unless_other_nodes_have_copies() -> None:
    plain = COSTS[(COSTS["strategy"] == "asynchronous") & (COSTS["recovery"] == "restart")]
    levels = plain.assign(
        durable_s=5.0, durable_s_lo=math.nan, durable_s_hi=math.nan, shared_every=8
    )
    own = advice(levels, [LLAMA], CHOICES)
    rate = 16384 / (LLAMA.mean_gpu_hours * 3600)
    saving, recovering = (
        Saving(stall_s=2.0, durable_s=5.0, slowdown_s=4.0),
        Recovering(down_s=600.0),
    )
    shared = Saving(stall_s=0.0, durable_s=90.0)
    global_tier = GlobalTier(saving=shared, every=8, needed=sampling.SURVIVABLE, down_s=600.0)
    row = one(own, "asynchronous", "restart", 16384)
    found = best(saving, recovering, rate, step_s=2.5, global_tier=global_tier)
    assert row["goodput"] == pytest.approx(float(found.goodput))
    assert row["fine_to_steps"] == found.fine_to_steps
    assert row["goodput_in_use"] == pytest.approx(
        float(goodput(1250.0, saving, recovering, rate, global_tier))
    )
    copied = one(
        advice(levels.assign(copied=True), [LLAMA], CHOICES), "asynchronous", "restart", 16384
    )
    assert row["goodput"] < copied["goodput"]
    assert (
        one(advice(plain, [LLAMA], CHOICES), "asynchronous", "restart", 16384)["goodput"]
        < copied["goodput"]
    )


@pytest.mark.parametrize("source", [inputs.STARTS, inputs.FAILURES])
def test_an_estimate_that_stands_in_for_others_has_the_same_draws_in_all_rows(source: str) -> None:
    """Else two strategies would seem to differ by what neither was measured at. To that of a start each adds its own load."""
    measured = {**COSTS.iloc[0], "down_s": 60.0, "down_s_lo": 50.0, "down_s_hi": 80.0}
    one_row = {**measured, "strategy": "one", "recovery": "restart", "down_from": source}
    other = {**one_row, "strategy": "other", "recovery": "ulfm"}
    if source == inputs.STARTS:
        other |= {"down_s": 61.0, "down_s_lo": 51.0, "down_s_hi": 81.0}
    draws = [sampling.recovering(row, 8, CHOICES).down_s for row in (one_row, other)]
    assert np.corrcoef(*map(np.log, draws))[0, 1] == pytest.approx(1)
    another = sampling.recovering({**one_row, "framework": "another"}, 8, CHOICES).down_s
    assert abs(np.corrcoef(draws[0], another)[0, 1]) < 0.3


def test_a_single_gpu_has_no_survivors() -> None:
    row = COSTS[COSTS["recovery"] == "shrink"].iloc[0]
    assert sampling.recovering(row, 2, CHOICES).survived == pytest.approx(
        np.full(401, sampling.SURVIVABLE)
    )
    assert (sampling.recovering(row, 1, CHOICES).survived == 0).all()
    alone = sampling.global_tier({**row, "shared_every": 8}, 1)
    assert alone is not None
    assert alone.needed == pytest.approx(np.full(401, sampling.SURVIVABLE))


def test_failures_that_survivors_go_on_from_need_no_level() -> None:
    plain = COSTS[(COSTS["strategy"] == "asynchronous") & (COSTS["recovery"] == "shrink")]
    found = sampling.global_tier({**plain.iloc[0], "shared_every": 8}, 512)
    assert found is not None
    assert (found.needed == 0.0).all()


def test_more_gpus_than_were_measured_are_projected_and_no_others(told: pd.DataFrame) -> None:
    assert set(told["gpus"]) == {512, 1024, 16384}
    assert (told["projected"] == (told["gpus"] > 512)).all()
    fewer = advice(COSTS, [LLAMA], CHOICES.model_copy(update={"gpus": [8, 512, 600]}))
    assert set(fewer["gpus"]) == {512, 600}


@pytest.mark.parametrize("name", ["best_steps", "best_minutes", "goodput", "goodput_in_use", "hours_between_failures"])  # fmt: skip
def test_every_estimate_lies_within_its_interval(told: pd.DataFrame, name: str) -> None:
    assert (told[f"{name}_lo"] <= told[name]).all()
    assert (told[name] <= told[f"{name}_hi"]).all()
    assert (told[f"{name}_lo"] < told[f"{name}_hi"]).all()


def test_wider_costs_make_wider_intervals() -> None:
    wide = COSTS.assign(stall_s_lo=COSTS["stall_s"] / 3, stall_s_hi=COSTS["stall_s"] * 3)
    widths = [
        (frame["goodput_hi"] - frame["goodput_lo"]).sum()
        for frame in (
            advice(costs, [rate_of_job(3.1 * 3600, 16384)], CHOICES) for costs in (COSTS, wide)
        )
    ]
    assert widths[1] > 1.5 * widths[0]


def test_costs_and_rates_without_intervals_have_none_in_the_answer() -> None:
    ends = [name for name in COSTS if name.endswith(("_lo", "_hi"))]
    mean_alone = rate_of_job(7.9 * 3600, 1024)
    row = advice(COSTS.assign(**dict.fromkeys(ends, math.nan)), [mean_alone], CHOICES).iloc[0]
    assert row["goodput_lo"] == row["goodput"] == row["goodput_hi"]


def test_the_winner_has_the_highest_goodput_of_its_system(told: pd.DataFrame) -> None:
    for _, own in told.groupby("gpus"):
        assert own["is_best"].sum() == 1
        assert own.loc[own["is_best"], "goodput"].item() == own["goodput"].max()
    assert told["p_best"].between(0, 1).all()


def test_a_winner_is_alone_where_it_beats_all_others_at_once() -> None:
    """Three rivals that are each worse in most draws may together be better more often."""
    own = COSTS[(COSTS["recovery"] == "restart") & (COSTS["strategy"] == "torch.save")]
    rivals = [own.assign(strategy=f"rival {place}", stall_s=61.0) for place in range(3)]
    told = advice(pd.concat([own, *rivals]), [LLAMA], CHOICES)
    for _, rows in told.groupby("gpus"):
        (alone,) = rows.loc[rows["is_best"], "p_strictly_best"]
        assert rows.loc[~rows["is_best"], "p_strictly_best"].isna().all()
        assert alone <= 1 - rows.loc[~rows["is_best"], "p_best"].max()
    single = advice(own, [LLAMA], CHOICES)
    assert set(single["p_strictly_best"]) == {1.0}


def test_a_certain_difference_counts_however_small() -> None:
    """A stall of 61 s in place of 60 loses 0.02 % of the time more."""
    ends = [name for name in COSTS if name.endswith(("_lo", "_hi"))]
    own = COSTS[(COSTS["recovery"] == "restart") & (COSTS["strategy"] == "torch.save")]
    sure = own.assign(**dict.fromkeys(ends, math.nan))
    told = advice(pd.concat([sure, sure.assign(strategy="rival", stall_s=61.0, durable_s=61.0)]), [LLAMA], CHOICES)  # fmt: skip
    assert set(told.loc[told["is_best"], "p_strictly_best"]) == {1.0}
    assert set(told.loc[~told["is_best"], "p_best"]) == {0.0}


def test_no_winner_is_alone_that_was_measured_once() -> None:
    ends = [name for name in COSTS if name.endswith(("_lo", "_hi"))]
    once = COSTS.assign(framework="pytorch", **dict.fromkeys(ends, math.nan))
    assert advice(once, [LLAMA], CHOICES)["p_strictly_best"].isna().all()
    given = advice(COSTS.assign(**dict.fromkeys(ends, math.nan)), [LLAMA], CHOICES)
    assert given.loc[given["is_best"], "p_strictly_best"].notna().all()


def test_no_winner_is_alone_that_has_a_rival_which_was_measured_once() -> None:
    ends = [name for name in COSTS if name.endswith(("_lo", "_hi"))]
    own = COSTS.iloc[:1].assign(framework="pytorch")
    rival = own.assign(strategy="rival", stall_s=600.0, durable_s=600.0)
    own, rival = (
        each.assign(
            **{end: each[end[:-3]] * (0.99 if end.endswith("_lo") else 1.01) for end in ends}
        )
        for each in (own, rival)
    )
    often = advice(pd.concat([own, rival]), [LLAMA], CHOICES)
    assert (often.loc[often["is_best"], "p_strictly_best"] > 0.95).all()
    once = advice(pd.concat([own, rival.assign(**dict.fromkeys(ends, math.nan))]), [LLAMA], CHOICES)
    assert set(once.loc[once["is_best"], "strategy"]) == set(own["strategy"])
    assert once["p_strictly_best"].isna().all()


def test_setups_that_certainly_cost_the_same_are_both_the_best_in_all_draws() -> None:
    ends = [name for name in COSTS if name.endswith(("_lo", "_hi"))]
    row = COSTS.iloc[:1].assign(**dict.fromkeys(ends, math.nan))
    twins = pd.concat([row, row.assign(recovery="another")])
    told = advice(twins, [LLAMA], CHOICES)
    assert set(told["p_best"]) == {1.0}
    assert set(told.loc[told["is_best"], "p_strictly_best"]) == {0.0}
    assert told["is_best"].sum() == told["gpus"].nunique()


def test_setups_that_are_not_foremost_are_told_but_do_not_win() -> None:
    better = COSTS.assign(interval="s7", stall_s=0.001, representative=False)
    told = advice(pd.concat([COSTS, better]), [LLAMA], CHOICES)
    other = told[told["interval"] == "s7"]
    assert len(other) == len(told) / 2
    assert not other["is_best"].any()
    assert other["p_best"].isna().all()
    assert "s7" not in set(scale(pd.concat([COSTS, better]), LLAMA, CHOICES)["interval"])


def test_every_rate_has_its_rows() -> None:
    told = advice(COSTS, RATES, CHOICES)
    assert set(told["rate"]) == {rate.name for rate in RATES}
    rarely, often = (
        told[(told["rate"] == name) & (told["gpus"] == 16384)]["goodput"].mean()
        for name in ("delta-a100-memory", "delta-a100-gsp")
    )
    assert rarely > often


def test_the_scale_goes_by_doubles_to_a_hundred_thousand() -> None:
    frame = scale(COSTS, LLAMA, CHOICES)
    assert sorted(frame["gpus"].unique()) == [512 << power for power in range(9)]
    own = frame[(frame["strategy"] == "torch.save") & (frame["recovery"] == "restart")]
    assert own.sort_values("gpus")["goodput"].is_monotonic_decreasing


def test_a_curve_is_highest_at_the_best_interval(told: pd.DataFrame) -> None:
    curves = goodput_curves(COSTS, LLAMA, CHOICES)
    for row in told.itertuples():
        same = (curves["strategy"] == row.strategy) & (curves["recovery"] == row.recovery) & (curves["gpus"] == row.gpus)  # fmt: skip
        curve = curves[same]
        assert curve["goodput"].max() == pytest.approx(row.goodput, abs=2e-3)
        assert curve["interval_minutes"].min() < row.best_minutes < curve["interval_minutes"].max()


def test_a_training_that_never_comes_to_its_next_version_has_no_goodput() -> None:
    hopeless: FailureRate = replace(LLAMA, mean_gpu_hours=10.0, lo=math.nan, hi=math.nan)
    told = advice(COSTS, [hopeless], CHOICES)
    assert np.isfinite(told["goodput"]).all()
    assert (told[told["gpus"] == 16384]["goodput"] < 0.01).all()


def test_no_costs_give_empty_tables() -> None:
    tables = decide(DECISION_COSTS.rows([]), RATES, CHOICES)
    for table in (ADVICE, SCALE, GOODPUT_CURVES):
        assert tables[table.name].empty
        assert list(tables[table.name]) == table.names

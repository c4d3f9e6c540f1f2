"""The costs that a decision is made from, out of the tables of a study."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from labelled import with_specs

from ckptbench.analysis.cost.strategies import STRATEGIES
from ckptbench.analysis.tables.columns import LOST_PARTS
from ckptbench.analysis.tables.registry import TABLES
from ckptbench.config.decision import DecisionSection
from ckptbench.decide import COST_TABLES, sampling
from ckptbench.decide.advice import advice
from ckptbench.decide.inputs import decision_costs
from ckptbench.decide.rates import read_rates
from ckptbench.decide.recoveries import kills

SYSTEM: dict[str, Any] = {
    "framework": "pytorch",
    "model": "resnet50",
    "dataset": "digits",
    "ranks": 2,
    "batch_size": 16,
    "epochs": 2,
    "optimizer": "sgd",
    "precision": "fp32",
    "deterministic": False,
    "accelerator": "cpu",
    "measured_on": "cpu",
}
CELL = {**SYSTEM, "strategy": "native", "format": "torch_save"}
ELASTIC = "ulfm replace=True"
"""A recovery as runs with failures have it. The runs without failures have it without options."""
STALLS = {"blocking": False, "stall_s": 0.2, "stall_s_lo": 0.1, "stall_s_hi": 0.4, "waited": 0.0, "slowdown_s": 0.05, "slowdown_s_lo": -0.1, "slowdown_s_hi": 0.2, "durable_s": 0.3, "durable_s_lo": 0.2, "durable_s_hi": 0.5, "load_s": math.nan, "bytes": 1e8, "checkpoints": 4, "shared_every": 1}  # fmt: skip


def setup(**changes: Any) -> dict[str, Any]:
    return with_specs({**CELL, "interval": "s10", "history": "whole", "recovery": "restart", "omit": "nothing", "cache": "warm", **changes})  # fmt: skip


class Made:
    """A study that is made row by row."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in COST_TABLES}
        # 32 samples a step, 64 a second: half a second.
        self.rows["scaling"].append({**SYSTEM, "samples_per_s": 64.0, "samples_per_s_lo": 32.0, "samples_per_s_hi": 128.0})  # fmt: skip
        self.rows["strategies"].append(setup(**STALLS))
        self.run(setup(), "whole0")

    def run(self, made: dict[str, Any], name: str) -> None:
        self.rows["runs"].append(
            {
                **made,
                "run": name,
                "steps_per_epoch": 20,
                "nodes": 1,
                "cores": 2,
                "attempts": 1,
                "shared_every": 1,
            }
        )
        self.phase(name, launch=0.5, meet=0.1, **{"import": 2.0}, build=0.4)
        self.rows["steps"] += [
            {"run": name, "rank": rank, "step": step, "duration_s": own, "warmup": step == 0}
            for rank in (0, 1)
            for step, own in enumerate((1.5, 0.5))
        ]

    def phase(self, run: str, attempt: int = 1, **seconds: float) -> None:
        self.rows["phases"] += [
            {"run": run, "rank": rank, "attempt": attempt, "phase": phase, "duration_s": own}
            for rank in (0, 1)
            for phase, own in seconds.items()
        ]

    def failure(self, run: str, *, second: float = 10.0, kind: str = "kill", ranks_before: int = 2, ranks_after: int | None = 2, **parts: float) -> None:  # fmt: skip
        lost = {**dict.fromkeys(LOST_PARTS, 0.0), **parts}
        self.rows["failures"].append({"run": run, "kind": kind, "second": second, "victim": "rank 1", "ranks_before": ranks_before, "ranks_after": ranks_after, **lost, "total_s": sum(lost.values())})  # fmt: skip

    def tables(self) -> dict[str, pd.DataFrame]:
        tables = {}
        for name, rows in self.rows.items():
            table = TABLES[name].table
            frame = pd.DataFrame(rows, columns=table.names)
            kinds = {column.name: column.kind for column in table.columns}
            texts = [name for name, kind in kinds.items() if kind == "text"]
            frame = frame.astype(dict.fromkeys(texts, object))
            tables[name] = frame.fillna(dict.fromkeys(texts, "")) if len(frame) else frame
        return tables

    def costs(self) -> pd.DataFrame:
        return decision_costs(self.tables())


@pytest.fixture
def study() -> Made:
    return Made()


def test_without_failures_a_restart_is_the_start_of_a_run_and_a_load_as_long_as_a_save(
    study: Made,
) -> None:
    (row,) = study.costs().to_dict("records")
    assert row["step_s"] == 0.5
    assert (row["step_s_lo"], row["step_s_hi"]) == (0.25, 1.0)
    assert (row["stall_s"], row["stall_s_lo"], row["stall_s_hi"]) == (0.2, 0.1, 0.4)
    assert row["down_s"] == pytest.approx(4.5 - 0.5 + 0.3)
    assert row["down_from"] == "starts"
    assert (row["recovery"], row["survived"], row["steps_per_epoch"]) == ("restart", 0.0, 20)


def test_ranks_that_share_cores_tell_no_cost_where_fewer_ran(study: Made) -> None:
    """Their times are no basis for a machine with a core for each rank."""
    more = {**STALLS, "stall_s": 9.0, "ranks": 4}
    study.rows["scaling"].append({**study.rows["scaling"][0], "ranks": 4})
    study.rows["strategies"].append(setup(**more))
    study.run(setup(ranks=4), "more0")
    assert list(study.costs()["ranks"]) == [2]
    study.rows["runs"][-1]["nodes"] = 2
    assert list(study.costs()["ranks"]) == [2, 4]
    study.rows["runs"][-1]["nodes"] = 1
    study.rows["strategies"], study.rows["scaling"] = ([study.rows[name][-1]] for name in ("strategies", "scaling"))  # fmt: skip
    assert list(study.costs()["ranks"]) == [4]


def test_a_measured_load_counts_where_there_is_one(study: Made) -> None:
    study.rows["strategies"][0]["load_s"] = 7.0
    assert study.costs()["down_s"].item() == pytest.approx(4.5 - 0.5 + 7.0)


def test_a_slowdown_that_is_not_known_is_said_to_be_taken_as_none(study: Made) -> None:
    study.rows["strategies"][0].update(slowdown_s=math.nan, slowdown_s_lo=math.nan, slowdown_s_hi=math.nan)  # fmt: skip
    assert "the slowdown during a save counts as 0" in study.costs()["note"].item()


def test_costs_of_disturbed_runs_say_so(study: Made) -> None:
    assert "disturbed" not in study.costs()["source"].item()
    study.run(setup(), "whole1")
    study.rows["machine"] += [
        {"run": "whole0", "disturbed": True, "by": ""}, {"run": "whole1", "disturbed": False, "by": ""},
        {"run": "elsewhere", "disturbed": True, "by": ""},
    ]  # fmt: skip
    assert study.costs()["source"].item().endswith(", others disturbed 1 of 2 runs (table machine)")


def test_a_strategy_without_levels_is_durable_where_it_is_shared(study: Made) -> None:
    row = study.costs().iloc[0]
    assert (row["shared_every"], row["copied"]) == (1, False)
    assert row["durable_s"] == row["shared_durable_s"] == 0.3


def test_versions_at_nearer_levels_have_a_durable_time_of_their_own(study: Made) -> None:
    study.rows["strategies"][0] |= {"strategy": "deepfreeze memory=1 shared=6", "shared_every": 6, "format": "safetensors", "near_durable_s": 0.1, "near_durable_s_lo": 0.08, "near_durable_s_hi": 0.12}  # fmt: skip
    row = study.costs().iloc[0]
    assert (row["durable_s"], row["durable_s_lo"], row["durable_s_hi"]) == (0.1, 0.08, 0.12)
    assert (row["shared_durable_s"], row["shared_durable_s_hi"]) == (0.3, 0.5)
    assert (row["shared_every"], row["copied"]) == (6, False)


def killed(study: Made, *, omit: str = "nothing", cache: str = "warm", **total_s: float) -> None:
    """By run, the seconds of its restart."""
    study.rows["restore"] += [
        {**setup(history="killed_between", omit=omit, cache=cache), "run": run, "attempt": 2, "total_s": own}
        for run, own in total_s.items()
    ]  # fmt: skip


def test_restarts_that_leave_a_part_out_tell_nothing_and_cold_ones_replace_warm_ones(
    study: Made,
) -> None:
    killed(study, omit="momentum", control0=90.0, control1=90.0)
    killed(study, warm0=5.0, warm1=5.0)
    assert study.costs()["down_s"].item() == pytest.approx(4.5)
    killed(study, cache="cold", cold0=9.0, cold1=9.0)
    assert study.costs()["down_s"].item() == pytest.approx(8.5)


def test_killed_runs_tell_what_a_restart_takes_but_for_a_usual_step(study: Made) -> None:
    killed(study, killed0=5.0, killed1=6.0)
    row = study.costs().iloc[0]
    assert row["down_s"] == pytest.approx(5.5 - 0.5)
    assert row["down_from"] == "restarts"
    assert row["down_s_lo"] < row["down_s"] < row["down_s_hi"]
    assert row["note"] == ""


def test_a_failure_costs_all_but_the_work_that_is_lost(study: Made) -> None:
    for run in ("struck0", "struck1"):
        study.run(setup(history="exponential mean_s=60"), run)
        study.failure(run, unfinished_s=3.0, detection_s=1.0, import_s=2.0, load_s=1.0, again_s=9.0, slower_s=0.5)  # fmt: skip
    row = study.costs().iloc[0]
    assert row["down_s"] == pytest.approx(4.5)
    assert row["down_from"] == "failures"


def test_a_failure_that_the_next_one_cuts_short_or_that_kills_nobody_tells_nothing(
    study: Made,
) -> None:
    study.run(setup(history="exponential mean_s=60"), "struck0")
    study.failure("struck0", second=10.0, detection_s=1.0)
    study.failure("struck0", second=11.0, detection_s=2.0, import_s=3.0)
    study.failure("struck0", second=50.0, kind="hang", detection_s=100.0, import_s=3.0)
    assert study.costs()["down_s"].item() == pytest.approx(5.0)


def elastic(study: Made) -> None:
    study.rows["strategies"].append(setup(recovery="ulfm", **STALLS))
    study.run(setup(history="exponential mean_s=60", recovery=ELASTIC), "struck0")
    study.failure("struck0", unfinished_s=0.2, detection_s=0.3, regroup_s=0.5, slower_s=8.0)


def test_survivors_that_go_back_to_a_version_lose_what_a_restart_loses(study: Made) -> None:
    """The work that is done again is not part of the cost: it depends on the interval, which the decision chooses."""
    study.run(setup(history="exponential mean_s=60", recovery="reinit"), "struck0")
    study.failure("struck0", detection_s=0.3, regroup_s=4.0, load_s=0.5, again_s=8.0)
    row = study.costs().set_index("recovery").loc["reinit"]
    assert row["down_s"] == pytest.approx(4.8)
    assert (row["down_from"], row["survived"], row["replaces"]) == ("failures", 0.0, True)


def test_kills_of_the_resume_proof_do_not_tell_what_a_failure_costs(study: Made) -> None:
    elastic(study)
    study.run(setup(history="killed_between"), "proof0")
    study.failure("proof0", unfinished_s=0.2, detection_s=0.3, launch_s=9.0)
    assert kills(study.tables())["run"].tolist() == ["struck0"]


def test_survivors_that_stay_fewer_leave_their_slower_steps_to_the_replacement(study: Made) -> None:
    elastic(study)
    costs = study.costs().set_index("recovery")
    row = costs.loc[ELASTIC]
    assert (row["survived"], row["survived_of"]) == (1.0, 1)
    assert not row["replaces"]
    assert row["pause_s"] == pytest.approx(1.0)
    assert row["down_from"] == "starts"
    assert costs.loc["restart", "survived"] == 0.0


def test_slower_steps_until_a_new_rank_has_come_are_part_of_the_pause(study: Made) -> None:
    elastic(study)
    study.phase("struck0", attempt=2, launch=1.0)
    row = study.costs().set_index("recovery").loc[ELASTIC]
    assert row["replaces"]
    assert row["pause_s"] == pytest.approx(9.0)


def test_a_rank_that_comes_anew_with_all_others_replaces_none(study: Made) -> None:
    """With two ranks the second failure leaves nobody to go on, and all start again."""
    elastic(study)
    study.rows["runs"][-1]["attempts"] = 2
    study.phase("struck0", attempt=2, launch=1.0)
    row = study.costs().set_index("recovery").loc[ELASTIC]
    assert not row["replaces"]
    assert row["pause_s"] == pytest.approx(1.0)


def test_the_loss_of_the_last_rank_does_not_count_against_survival(study: Made) -> None:
    """Of many ranks there is always another one left."""
    elastic(study)
    study.failure(
        "struck0", second=60.0, ranks_before=1, detection_s=1.0, launch_s=1.0, import_s=2.0
    )
    row = study.costs().set_index("recovery").loc[ELASTIC]
    assert row["survived"] == 1.0
    assert row["down_s"] == pytest.approx(4.0)


def test_failures_after_which_all_start_again_count_against_survival(study: Made) -> None:
    elastic(study)
    study.failure("struck0", second=60.0, detection_s=1.0, launch_s=1.0, import_s=2.0)
    row = study.costs().set_index("recovery").loc[ELASTIC]
    assert (row["survived"], row["survived_of"]) == (0.5, 2)
    assert row["down_s"] == pytest.approx(4.0)
    assert row["down_from"] == "failures"


def baselines(study: Made, **step_s: tuple[float, float]) -> None:
    """By recovery, the step of the baseline of each repeat."""
    for recovery, each in step_s.items():
        for repeat, own in enumerate(each):
            name = f"{recovery}{repeat}"
            study.run(setup(interval="never", recovery=recovery), name)
            study.rows["runs"][-1] |= {"repeat": repeat, "timing_valid": True}
            for row in study.rows["steps"]:
                if row["run"] == name:
                    row["duration_s"] = own


@pytest.mark.parametrize(
    ("ulfm", "slower", "counts"),
    [((0.75, 0.9), 1.5, 1.5), ((0.55, 0.66), 1.1, 1.1), ((0.25, 0.3), 0.5, 1.0)],
)
def test_steps_count_that_a_recovery_slows_down(
    study: Made, ulfm: tuple[float, float], slower: float, counts: float
) -> None:
    """Beside restarts of 0.5 and 0.6 s. A recovery whose steps are faster counts as equal."""
    baselines(study, restart=(0.5, 0.6), ulfm=ulfm)
    elastic(study)
    costs = study.costs().set_index("recovery")
    assert costs.loc[ELASTIC, "slower"] == pytest.approx(slower)
    assert costs.loc["restart", "slower"] == 1
    drawings = sampling.slower({**costs.loc[ELASTIC], "recovery": ELASTIC})
    assert drawings[0] == pytest.approx(counts)
    assert drawings.min() >= 1


def overhead_of(paired: tuple[float, ...], in_run: tuple[float, ...], **changes: Any) -> dict[str, Any]:  # fmt: skip
    """A row of `overhead`: each estimate with its ends."""
    known = {"paired": paired, "in_run": in_run}
    ends = {f"{name}{end}": value for name, each in known.items() for end, value in zip(("", "_lo", "_hi"), each, strict=True)}  # fmt: skip
    apart = paired[1] > in_run[2] or in_run[1] > paired[2]
    return setup(**ends, agree=not apart, steps_per_epoch=20, **changes)


@pytest.fixture
def two_strategies(study: Made) -> Made:
    """`torchsnapshot` stalls for a twentieth of what `async` does. Its other steps take half as long again, which only the runs without checkpoints show."""
    stalls = {"async": 0.2, "torchsnapshot": 0.01}
    study.rows["strategies"] = [
        setup(**{**STALLS, "stall_s": own, "stall_s_lo": 0.9 * own, "stall_s_hi": 1.1 * own}, strategy=name)
        for name, own in stalls.items()
    ]  # fmt: skip
    study.rows["overhead"] = [
        overhead_of((0.05, 0.02, 0.08), (0.04, 0.03, 0.05), strategy="async"),
        overhead_of((0.53, 0.50, 0.60), (0.02, 0.015, 0.05), strategy="torchsnapshot"),
    ]
    return study


@pytest.mark.parametrize(
    ("paired", "waited", "slowdown_s"),
    [((0.5, 0.4, 0.6), 0.0, 2.3), ((0.5, -0.1, 1.1), 0.0, math.nan), ((0.5, 0.4, 0.6), 0.3, math.nan)],
)  # fmt: skip
def test_where_every_step_ran_beside_a_save_the_slowdown_is_what_the_baseline_shows(
    study: Made, paired: tuple[float, ...], waited: float, slowdown_s: float
) -> None:
    """A save every ten steps of half a second stalls for 0.2 s. If it is certain that it costs something, and none of it was the wait of the next save."""
    unknown = (math.nan, math.nan, math.nan)
    study.rows["strategies"][0] |= {"slowdown_s": math.nan, "slowdown_s_lo": math.nan, "slowdown_s_hi": math.nan, "waited": waited}  # fmt: skip
    study.rows["overhead"] = [{**overhead_of(paired, unknown), "agree": pd.NA}]
    (row,) = study.costs().to_dict("records")
    assert row["slowdown_s"] == pytest.approx(slowdown_s, nan_ok=True)
    is_known = not math.isnan(slowdown_s)
    assert ("the slowdown during a save counts as 0" in row["note"]) != is_known
    if is_known:
        assert (row["slowdown_s_lo"], row["slowdown_s_hi"]) == pytest.approx((1.8, 2.8))


def winner(study: Made) -> str:
    rates = read_rates(Path(__file__).resolve().parents[2] / "config" / "failures")
    found = advice(study.costs(), rates[:1], DecisionSection(gpus=[]))
    return str(found.loc[found["is_best"], "strategy"].item())


def test_the_decision_picks_what_costs_the_least_in_all_and_not_the_smallest_stall(
    two_strategies: Made,
) -> None:
    assert winner(two_strategies) == "async"
    two_strategies.rows["overhead"] = []
    assert winner(two_strategies) == "torchsnapshot"


def test_steps_count_that_a_strategy_slows_down_everywhere(two_strategies: Made) -> None:
    costs = two_strategies.costs().set_index("strategy")
    slower = costs.loc["torchsnapshot", [f"slower_everywhere{end}" for end in ("", "_lo", "_hi")]]
    assert slower.tolist() == pytest.approx([1.5, 1.447, 1.569], abs=1e-3)
    drawn = sampling.slower({**costs.loc["torchsnapshot"], "strategy": "torchsnapshot"})
    assert drawn[0] == pytest.approx(1.5)
    assert math.isnan(costs.loc["async", "slower_everywhere"])
    assert (sampling.slower({**costs.loc["async"], "strategy": "async"}) == 1).all()


def test_what_a_blocking_strategy_leaves_behind_is_of_its_saves(study: Made) -> None:
    """A save every ten steps of half a second. Nothing of it runs where nothing is saved."""
    study.rows["strategies"][0] |= {"blocking": True, "slowdown_s": math.nan}
    study.rows["overhead"] = [overhead_of((0.30, 0.25, 0.35), (0.04, 0.03, 0.05))]
    (row,) = study.costs().to_dict("records")
    assert math.isnan(row["slower_everywhere"])
    ends = [row[f"slowdown_s{end}"] for end in ("", "_lo", "_hi")]
    assert ends == pytest.approx([0.26 * 5, 0.20 * 5, 0.32 * 5])


def test_a_blocking_strategy_whose_estimates_agree_keeps_its_slowdown(study: Made) -> None:
    study.rows["strategies"][0] |= {"blocking": True}
    study.rows["overhead"] = [overhead_of((0.05, 0.02, 0.08), (0.04, 0.03, 0.05))]
    (row,) = study.costs().to_dict("records")
    assert row["slowdown_s"] == 0.05


def test_steps_that_are_faster_than_the_baseline_count_as_equal(study: Made) -> None:
    study.rows["overhead"] = [overhead_of((-0.2, -0.25, -0.15), (0.04, 0.03, 0.05))]
    assert math.isnan(study.costs()["slower_everywhere"].item())


def test_a_load_that_is_taken_to_last_as_long_as_a_save_is_as_uncertain(study: Made) -> None:
    study.run(setup(), "whole1")
    row = study.costs().iloc[0]
    assert row["down_s_lo"] == pytest.approx(row["down_s"] - 0.1)
    assert row["down_s_hi"] == pytest.approx(row["down_s"] + 0.2)


def test_setups_without_times_have_no_row(study: Made) -> None:
    study.rows["strategies"][0]["durable_s"] = math.nan
    assert study.costs().empty
    assert set(STALLS) <= set(STRATEGIES.names)


def test_the_interval_with_the_most_checkpoints_that_did_not_wait_is_foremost(study: Made) -> None:
    study.rows["strategies"].append(setup(**{**STALLS, "checkpoints": 20}, interval="s2"))
    study.run(setup(interval="s2"), "whole1")
    costs = study.costs().set_index("interval")
    assert dict(costs["representative"]) == {"s10": False, "s2": True}
    study.rows["strategies"][-1]["waited"] = 0.7  # six did not wait
    assert dict(study.costs().set_index("interval")["representative"]) == {"s10": False, "s2": True}
    study.rows["strategies"][-1]["waited"] = 0.9
    costs = study.costs().set_index("interval")
    assert dict(costs["representative"]) == {"s10": True, "s2": False}

"""Tables of the decision, made from invented costs by the real functions, for figures and sentences."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd
from figure_tables import Study

from ckptbench.config.decision import DecisionSection
from ckptbench.decide.decision import decide
from ckptbench.decide.inputs import DECISION_COSTS, STARTS, fitted
from ckptbench.decide.rates import read_rates
from ckptbench.decide.user_costs import read_user_costs

REPOSITORY = Path(__file__).resolve().parents[2]
CHOICES = DecisionSection(gpus=[1024, 131_072])
MEASURED = {
    "framework": "pytorch",
    "model": "resnet50",
    "dataset": "digits",
    "ranks": 2,
    "batch_size": 16,
    "epochs": 2,
    "optimizer": "sgd",
    "precision": "fp32",
    "accelerator": "cpu",
    "measured_on": "cpu",
    "down_from": STARTS,
    "step_s_lo": 2.45,
    "step_s_hi": 2.55,
    "durable_s_lo": 58.0,
    "durable_s_hi": 122.0,
    "source": "measured on CPU (a machine), 2026-01-02, 3 repeats",
}


def given() -> pd.DataFrame:
    """Costs of a file."""
    return read_user_costs(REPOSITORY / "config" / "costs-example.yaml")


def measured(**changes: object) -> pd.DataFrame:
    """The same costs, as if a study had measured them."""
    names = {"torch.save": "native", "asynchronous": "deepfreeze"}
    recoveries = {"restart": "restart", "shrink": "ulfm"}
    costs = given().assign(**{**MEASURED, **changes})
    strategy, recovery = costs["strategy"].map(names), costs["recovery"].map(recoveries)
    return DECISION_COSTS.frame(
        costs.assign(
            strategy=strategy, strategy_name=strategy, recovery=recovery, recovery_name=recovery
        )
    )


def _shards() -> pd.DataFrame:
    """Of one strategy on 1, 2 and 4 ranks, replicas beside shards; and how the costs of each grow."""
    costs = pd.concat(
        measured(
            framework=framework,
            ranks=ranks,
            stall_s=stall_s,
            stall_s_lo=stall_s,
            stall_s_hi=stall_s,
        )
        for framework, stalls_s in (("pytorch", (12, 12.5, 13)), ("pytorch_fsdp", (13, 7, 4)))
        for ranks, stall_s in zip((1, 2, 4), stalls_s, strict=True)
    )
    costs = costs[costs["strategy"] == "native"].reset_index(drop=True)
    return costs.assign(growth=fitted(costs, ("framework", "recovery")))


@cache
def _decided(kind: str) -> dict[str, pd.DataFrame]:
    costs = {
        "given": given,
        "measured": measured,
        "several": lambda: pd.concat(
            [measured(), measured(ranks=1), measured(framework="chainer")]
        ),
        "trainings": lambda: pd.concat([measured(), measured(model="gpt2", stall_s=9.0)]),
        "shards": _shards,
        "two intervals": lambda: pd.concat(
            [measured(), measured(interval="s7", stall_s=9.0, representative=False)]
        ),
        "empty": lambda: DECISION_COSTS.rows([]),
    }[kind]()
    rates = [rate for rate in read_rates(REPOSITORY / "config" / "failures") if rate.name in ("llama3", "kokolis-1k")]  # fmt: skip
    return decide(costs, rates, CHOICES)


def decided(kind: str) -> dict[str, pd.DataFrame]:
    """The tables of a study in which the decision was made from `given`, `measured`, `several`, `trainings`, `shards`, `two intervals` or `empty` costs."""
    own = {name: frame.copy() for name, frame in _decided(kind).items()}
    return {**Study(frameworks=("pytorch",)).tables(), **own}

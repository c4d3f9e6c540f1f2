"""The costs of a user who has only numbers and no study: a file, read into the table `decision_costs`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import AfterValidator, Field, PlainValidator, WithJsonSchema

from ckptbench.analysis.cost.statistics import UNKNOWN, Estimate, Interval
from ckptbench.config.reading import ConfigFiles, FieldError
from ckptbench.config.section import Section, checked
from ckptbench.config.values import LARGEST_NUMBER, Count, Flag, IntervalText, Text, number, whole
from ckptbench.decide.inputs import DECISION_COSTS, GIVEN, UNCERTAIN
from ckptbench.matrix.interval import NEVER
from ckptbench.matrix.plugin_spec import PluginSpec

LARGEST_BYTES = 10**15
Part = Annotated[float, number(minimum=0, maximum=1)]


HELP = (
    "use a number of seconds from 0, or {value: ..., lo: ..., hi: ...} with 0 < lo <= value <= hi"
)


def _time(value: object) -> Estimate:
    if isinstance(value, dict) and value.keys() == {"value", "lo", "hi"}:
        numbers = lo, middle, hi = [value[name] for name in ("lo", "value", "hi")]
        is_each = all(type(number) in (int, float) for number in numbers)
        if is_each and 0 < lo <= middle <= hi <= LARGEST_NUMBER:
            return Estimate(float(middle), Interval(float(lo), float(hi)))
    elif isinstance(value, int | float) and type(value) is not bool and 0 <= value <= LARGEST_NUMBER:  # fmt: skip
        return Estimate(float(value), UNKNOWN)
    raise ValueError(HELP)


TIME_SCHEMA = {"type": ["number", "object"], "format": "time"}
Time = Annotated[Estimate, PlainValidator(_time), WithJsonSchema(TIME_SCHEMA)]


def _lasting(time: Estimate) -> Estimate:
    if time.value == 0:
        raise ValueError("use more than 0 seconds: all intervals are counted in steps")
    return time


def _regular(interval: str) -> str:
    if interval == str(NEVER):
        raise ValueError(
            "use an interval, such as 1 or 500 steps: `never` gives nothing to compare with"
        )
    return interval


class UserStrategy(Section):
    """What a checkpoint costs."""

    name: Text
    """As the answer calls it."""
    stall_s: Time
    """Training is blocked."""
    durable_s: Time | None = None
    """Time until a restart can use the version. Without: the stall."""
    slowdown_s: Time = Estimate(0.0, UNKNOWN)
    """What all steps together lose while it is written."""
    shared_every: Count = 1
    """Every n-th version goes to storage that outlives a node."""
    shared_durable_s: Time | None = None
    """Time until a version lies there; needed where `shared_every` is above 1."""
    copied: Flag = False
    """Whether other nodes keep copies of the versions in a node."""
    bytes: Annotated[int | None, whole(1, LARGEST_BYTES)] = None
    """Size of a version."""


class UserRecovery(Section):
    """What a failure costs."""

    name: Text
    """As the answer calls it."""
    down_s: Time
    """Time until training goes on from a version."""
    survived: Part = 0.0
    """The part of failures of one node that survivors go on from."""
    pause_s: Time = Estimate(0.0, UNKNOWN)
    """Time that such a failure costs."""
    replaces: Flag = True
    """Whether a new rank takes the place of a lost one at once."""


class UserCosts(Section):
    """The whole file."""

    title: Text
    """What the answer calls your training."""
    gpus: Count
    """GPUs with which the numbers hold. More are projected, at the same costs."""
    step_s: Annotated[Time, AfterValidator(_lasting)]
    """One step without checkpoints."""
    steps_per_epoch: Count
    """Steps of an epoch."""
    interval: Annotated[IntervalText, AfterValidator(_regular)] = Field(
        default=1, validate_default=True
    )
    """How often you take a checkpoint now, as in `matrix`."""
    strategies: Annotated[list[UserStrategy], Field(min_length=1)]
    """Ways to checkpoint, each with the fields below, that in use first."""
    recoveries: Annotated[list[UserRecovery], Field(min_length=1)]
    """Ways to recover, in the same way."""


def read_user_costs(path: Path) -> pd.DataFrame:
    """The table `decision_costs`. Raises ConfigError with one line for each wrong value: the file, the field and the remedy."""
    sources = ConfigFiles.of(path)
    given = checked(UserCosts, sources)
    sources.refuse(_faults(given))
    return costs_table(given, f"costs of {path.name}, not measured here")


def costs_table(given: UserCosts, source: str) -> pd.DataFrame:
    """The table `decision_costs` of costs that leave out no time. `source` says whose they are."""
    shared: dict[str, Any] = {
        "framework": GIVEN,
        "model": given.title,
        "dataset": GIVEN,
        "ranks": given.gpus,
        "batch_size": 0,
        "epochs": 0,
        "optimizer": "",
        "precision": "",
        "deterministic": False,
        "accelerator": GIVEN,
        "measured_on": GIVEN,
        "format": "none",
        "interval": given.interval,
        "steps_per_epoch": given.steps_per_epoch,
        "representative": True,
        "slower": 1.0,
        "down_from": GIVEN,
        "note": "",
        "growth": "",
        "source": source,
    }
    return DECISION_COSTS.rows(
        {**shared, **_times(given, saved, recovered), **PluginSpec(saved.name).columns("strategy"), **PluginSpec(recovered.name).columns("recovery"),
         "today": saved is given.strategies[0] and recovered is given.recoveries[0], "survived": recovered.survived, "survived_of": None, "replaces": recovered.replaces, "shared_every": saved.shared_every, "copied": saved.copied, "bytes": math.nan if saved.bytes is None else saved.bytes}
        for saved in given.strategies
        for recovered in given.recoveries
    )  # fmt: skip


def _durable_s(saved: UserStrategy) -> float:
    return (saved.stall_s if saved.durable_s is None else saved.durable_s).value


def _faults(given: UserCosts) -> Iterator[FieldError]:
    """Costs that contradict each other."""
    for index, saved in enumerate(given.strategies):
        for field, words in _contradictions(saved):
            yield FieldError(("strategies", index, field), words, getattr(saved, field))
    for kind in ("strategies", "recoveries"):
        # As figures and sentences show them: with blanks for underscores.
        names = [each.name.replace("_", " ").strip() for each in getattr(given, kind)]
        for index, name in enumerate(names):
            if name in names[:index]:
                yield FieldError(
                    (kind, index, "name"),
                    "two have this name: give each its own",
                    getattr(given, kind)[index].name,
                )


def _contradictions(saved: UserStrategy) -> Iterator[tuple[str, str]]:
    """Each with its field and what to do about it."""
    durable_s = _durable_s(saved)
    if durable_s < saved.stall_s.value:
        yield "durable_s", "durable before training goes on: use at least stall_s, or leave it out"
    if saved.shared_every == 1 and saved.shared_durable_s is not None:
        yield (
            "shared_durable_s",
            "every version lies in the shared storage: write its time as durable_s, or set shared_every",
        )
    if saved.shared_every > 1 and saved.shared_durable_s is None:
        yield "shared_every", "say in shared_durable_s when a version lies in the shared storage"
    if saved.shared_durable_s is not None and saved.shared_durable_s.value < durable_s:
        yield (
            "shared_durable_s",
            "sooner in the shared storage than in the nodes: use at least durable_s",
        )


def _times(given: UserCosts, saved: UserStrategy, recovered: UserRecovery) -> dict[str, float]:
    durable = saved.stall_s if saved.durable_s is None else saved.durable_s
    times = {
        "step_s": given.step_s,
        "stall_s": saved.stall_s,
        "slowdown_s": saved.slowdown_s,
        "durable_s": durable,
        "shared_durable_s": durable if saved.shared_durable_s is None else saved.shared_durable_s,
        "down_s": recovered.down_s,
        "pause_s": recovered.pause_s,
    }
    assert times.keys() == UNCERTAIN.keys()
    return {
        name: value for cost, time in times.items() for name, value in time.columns(cost).items()
    }

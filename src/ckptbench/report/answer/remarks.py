"""What to know before an answer is quoted, in sentences: whether the measurement is to be believed, and what no table says by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from ckptbench.analysis.provenance import caption_facts
from ckptbench.analysis.tables.columns import SYSTEM
from ckptbench.analysis.tables.grouping import groups, records
from ckptbench.decide.advice import DIFFERING
from ckptbench.decide.inputs import GIVEN, STARTS, UNKNOWN_SLOWDOWN
from ckptbench.decide.projection import CONSTANT, FIT
from ckptbench.decide.rates import OWN
from ckptbench.decide.sampling import SURVIVABLE
from ckptbench.decide.units import SECONDS_PER_HOUR, SECONDS_PER_MINUTE
from ckptbench.matrix.registry import KILLED, NOTHING
from ckptbench.report.answer.labels import capitalized, counted, describe, every, listed
from ckptbench.report.answer.layout import NOW
from ckptbench.report.answer.notes import AT_BEST, waiting
from ckptbench.report.answer.quantities import PERCENT, Quantity, Unit, duration
from ckptbench.report.answer.setups import in_words, varying, with_hardware

Tables = Mapping[str, pd.DataFrame]

DISTURBERS = {"others": "other programs", "stolen": "the host of this machine"}
"""Who disturbs a run, by the column that says so."""
ASSUMED = {
    CONSTANT: "Projected: steps, checkpoints and restarts are assumed to cost the same as on fewer GPUs",
    FIT: "Projected: checkpoints and restarts follow a fit to several numbers of ranks, steps cost the same",
}
"""How costs were projected, by the column `projection` of the table `advice`."""
TIMES = Unit("times")
MATTERS = 1.05
"""A remark is made where a step may take this many times as long."""
TITLE_LETTERS = 60
"""Characters of a failure rate's title that are shown."""


def verdict(tables: Tables) -> tuple[str, ...]:
    """Whether to believe the measurement. Empty of costs that a user gave."""
    if "overhead" not in tables:
        return ()
    against = [*_disturbed(tables["machine"]), *_torn(tables["consistency"]), *_restarts(tables["resume_proof"]), *_overheads(tables["overhead"])]  # fmt: skip
    return (*(against or _in_order(tables)), *_not_timed(tables))


def _disturbed(machine: pd.DataFrame) -> Iterator[str]:
    disturbed = machine[machine["disturbed"].fillna(False).astype(bool)]
    if len(disturbed):
        from ckptbench.analysis.collect.machine import LIMITS

        who = [
            name
            for column, name in DISTURBERS.items()
            if (disturbed[column] > LIMITS[column]).any()
        ]
        yield f"Do not quote: {listed(who)} disturbed {len(disturbed)} of {counted(len(machine), 'run')} (table machine)."


def _torn(consistency: pd.DataFrame) -> Iterator[str]:
    for key, runs in groups(consistency[consistency["torn"] > 0], ["strategy", "framework"]):
        all_of = consistency[(consistency["strategy"] == key["strategy"]) & (consistency["framework"] == key["framework"])]  # fmt: skip
        name = f"{describe('strategy', key['strategy'])} with {describe('framework', key['framework'])}"
        yield f"Do not use {name}: {runs['torn'].sum()} of {counted(int(all_of['versions_compared'].sum()), 'version')} are torn, not the state of their step."


def _restarts(proof: pd.DataFrame) -> Iterator[str]:
    honest = proof[(proof["omit"] == NOTHING) & proof["deterministic"]]
    other = honest[~honest["bit_equal"]]
    if len(other):
        yield f"Do not trust restarts: in deterministic mode {len(other)} of {counted(len(honest), 'run')} ended with different bits ({_frameworks(other)})."
    controls = proof[proof["omit"] != NOTHING]
    missed = controls[~controls["caught"].fillna(False).astype(bool)]
    if len(missed):
        parts = listed(sorted({describe("omit", part) for part in missed["omit"]}))
        yield f"Do not trust the comparison of bits: it missed {len(missed)} of {counted(len(controls), 'restart')} without a part of the state ({parts})."


def _overheads(overhead: pd.DataFrame) -> Iterator[str]:
    number = len(overhead)
    if not number:
        return
    hardware = with_hardware(overhead)["hardware"]
    if (asked := hardware[hardware.str.contains("asked")]).size:
        yield f"Not the device requested: {_of(asked.size, number)} ran on {asked.iloc[0]}."
    if overhead["overhead_lo"].isna().all():
        yield "No setup ran twice, so the spread between runs is unknown and no measured number has an interval."
    apart = overhead["agree"].eq(False).fillna(False)
    if apart.any():
        yield f"The overhead of {_of(int(apart.sum()), number)} is the paired estimate, as the one from inside the run contradicts it (table overhead)."
    alone = overhead["paired"].isna()
    if alone.any():
        yield f"No baseline ran for {_of(int(alone.sum()), number)}: the overhead comes only from inside the runs."
    untold = (overhead["overhead_lo"] <= 0) & (overhead["overhead_hi"] >= 0)
    if untold.any():
        yield f"Inconclusive for {_of(int(untold.sum()), number)}: the 95 % interval of the overhead contains zero."


def _in_order(tables: Tables) -> list[str]:
    """What speaks for a measurement that nothing speaks against."""
    machine, overhead = tables["machine"], tables["overhead"]
    facts = [
        *([f"no other program disturbed its {counted(len(machine), 'run')}"] if machine["disturbed"].notna().any() else []),
        *(["the two estimates of the overhead agree"] if overhead["agree"].notna().any() else []),
    ]  # fmt: skip
    return [f"Fit to quote: {', and '.join(facts)}."] if facts else []


def _not_timed(tables: Tables) -> Iterator[str]:
    if number := int(tables["provenance"]["continued"].sum()):
        yield f"{counted(number, 'run')} continued after an interruption: not timed."
    if tables["overhead"].empty and len(tables["provenance"]):
        yield "No setup with checkpoints was timed, so there is no cost of a checkpoint."


def of_decision(rows: pd.DataFrame) -> Iterator[str]:
    """On the numbers of the table: `rows` are those of the screen."""
    yield from (f"{ASSUMED[how]}." for how in ASSUMED if (rows["projection"] == how).any())
    costs = rows.drop_duplicates([*SYSTEM, "strategy", "format", "recovery"])
    started = costs["down_from"] == STARTS
    if started.any():
        yield f"No restart was measured{_which(started)}: assumed to be a start plus a load (config/studies/faults.yaml measures it)."
    measured = costs[costs["down_from"] != GIVEN]
    if (once := measured[[f"{name}_lo" for name in DIFFERING]].isna().any(axis=1)).any():
        yield f"Some costs{_which(once)} were measured once and have no interval (table decision_costs)."
    if (unknown := costs["note"].str.contains(UNKNOWN_SLOWDOWN, regex=False)).any():
        yield f"{capitalized(UNKNOWN_SLOWDOWN)}{_which(unknown)}."
    yield from _of_elastic(costs)
    yield from _of_slower_steps(costs)


def of_waiting(rows: pd.DataFrame) -> Iterator[str]:
    """The strategy whose saves wait the longest for the one before."""
    costs = rows.drop_duplicates([*SYSTEM, "strategy", "format", "recovery"])
    in_use = _minutes_in_use(costs).where(costs["name"] == costs["now_name"])
    for when, minutes in ((NOW, in_use), (AT_BEST, costs["best_minutes"])):
        interval_s = minutes * SECONDS_PER_MINUTE
        took_s = interval_s + costs["stall_s"] + costs["slowdown_s"].fillna(0.0).clip(lower=0.0)
        waits_s = costs["durable_s"] - took_s
        if (waits_s > 0).any():
            yield waiting(
                str(costs["name"].iloc[int(waits_s.argmax())]), when, float(waits_s.max())
            )


def _minutes_in_use(costs: pd.DataFrame) -> pd.Series[float]:
    return costs["in_use_steps"] * costs["best_minutes"] / costs["best_steps"]


def of_device(rows: pd.DataFrame) -> Iterator[str]:
    """Costs of CPU cores, from which nobody should take those of GPUs."""
    if unit_of(rows) == "GPU" and rows["measured_on"].eq("cpu").all():
        yield "These costs were measured on CPU cores: a GPU's differ. Give your own (--blocking, --async)."


def unit_of(rows: pd.DataFrame) -> str:
    """What is counted: processes on CPU are ranks, where no row is of GPUs."""
    return "rank" if (rows["measured_on"].eq("cpu") & ~rows["projected"]).all() else "GPU"


def of_rate(rows: pd.DataFrame, rates: pd.DataFrame) -> Iterator[str]:
    """Whose failures, and how often they come with the most GPUs."""
    row = records(rows[rows["gpus"] == rows["gpus"].max()])[0]
    rate = records(rates[rates["rate"] == row["rate"]])[0]
    title = rate["title"][:TITLE_LETTERS]
    is_counted = pd.notna(rate["failures"])
    is_bound = is_counted and rate["failures"] == 0
    once = duration(SECONDS_PER_HOUR * row["hours_between_failures"])
    often = f"{'at most ' if is_bound else ''}one in {once} on {counted(row['gpus'], unit_of(rows))}"  # fmt: skip
    if rate["source"] != OWN:
        yield f"Failures as published of {title}: {often}. Yours may differ."
    elif is_counted:
        yield f"Failures as in {title}: {often}."
    else:
        yield f"Failures: {often}, as you say."


def _of_elastic(costs: pd.DataFrame) -> Iterator[str]:
    """What recoveries with survivors rest on."""
    if (surviving := costs[costs["survived"] > 0]).size:
        known = surviving[surviving["survived_of"] > 0].drop_duplicates([*SYSTEM, "recovery"])
        kills = int(known["survived_of"].sum())
        went_on = round(float((known["survived"] * known["survived_of"].astype(float)).sum()))
        measured = f", {went_on} of {counted(kills, 'kill')} here" if kills else ""
        yield f"Survivors continue after {100 * costs['survived'].max():.0f} % of failures ({100 * SURVIVABLE:.0f} % hit a single node{measured})."


def _of_slower_steps(costs: pd.DataFrame) -> Iterator[str]:
    """What a recovery costs where nothing fails, and a strategy where nothing is written."""
    for column, begin, of in (
        ("slower", "Without failures, a step", "recovery"),
        ("slower_everywhere", "Every step", "strategy"),
    ):
        slower = costs[(costs[column] > 1) | (costs[f"{column}_hi"] > MATTERS)]
        if len(slower):
            most = records(slower.sort_values(column))[-1]
            yield f"{begin} takes up to {Quantity.of(most, column).shown(TIMES)} as long with {describe(of, most[of])}: counted."


def of_measurement(tables: Tables) -> tuple[str, ...]:
    """On what was measured beside the costs of the decision, and where."""
    if "overhead" not in tables:
        return ()
    where = [f"{caption_facts(tables['provenance'])}."] if len(tables["provenance"]) else []
    return (
        *_crowded(tables),
        *_added(tables["overhead"]),
        *_changed(tables["goodput"]),
        *_proved(tables["resume_proof"]),
        *where,
    )


def _crowded(tables: Tables) -> Iterator[str]:
    """The numbers of ranks without costs, as they shared cores."""
    cores = (tables["provenance"]["cores"] * tables["provenance"]["nodes_max"]).max()
    known, ran = tables["decision_costs"]["ranks"], tables["overhead"]["ranks"]
    shared = sorted(ranks for ranks in {*ran} - {*known} if ranks > cores)
    if len(known) and shared:
        yield f"Not counted: runs on {' and '.join(f'{ranks:,}' for ranks in shared)} ranks, which shared {counted(int(cores), 'core')}."


def _added(overhead: pd.DataFrame) -> Iterator[str]:
    """The least and the largest overhead. What may be none, as zero lies in its interval or it has no interval, is no finding."""
    is_told = (overhead["overhead_lo"] > 0) | (overhead["overhead_hi"] < 0)
    known = with_hardware(overhead[is_told]).sort_values("overhead", kind="stable")
    if known.empty:
        return
    names = ["framework", *varying(known, ["model", "dataset", "batch_size", "hardware", "strategy"]), "ranks", *varying(known, ["interval"])]  # fmt: skip
    ends = known.iloc[[0, -1]] if len(known) > 1 else known
    named = zip(records(ends), in_words(ends, names, ", "), strict=True)
    of = [f"{Quantity.of(row, 'overhead').shown(PERCENT)} ({name})" for row, name in named]
    yield f"Measured overhead, on top of training without checkpoints: {' to '.join(of)}."


def _proved(proof: pd.DataFrame) -> Iterator[str]:
    """Runs that were killed and restarted: how many have the same bits, and how many negative controls were caught."""
    killed = proof[(proof["omit"] == NOTHING) & proof["history"].isin(list(KILLED))]
    parts = []
    for mode, runs in killed.groupby("deterministic"):
        other = runs[~runs["bit_equal"]]
        not_equal = f", not {_frameworks(other)}" if len(other) else ""
        parts.append(
            f"{len(runs) - len(other)} of {len(runs)} in {describe('deterministic', mode)}{not_equal}"
        )
    controls = proof[proof["omit"] != NOTHING]
    caught = int(controls["caught"].fillna(False).sum())
    noticed = f"; controls caught: {caught} of {len(controls)}" if len(controls) else ""
    if parts:
        yield f"Bits after a kill and a restart: equal in {'; '.join(reversed(parts))}{noticed}."


def _changed(goodput: pd.DataFrame) -> Iterator[str]:
    """Training that failures have changed."""
    changed = goodput[goodput["kept"].eq(False).fillna(False)]
    if len(changed):
        recoveries = listed(sorted({describe("recovery", each) for each in changed["recovery"]}))
        yield f"Failures changed the trained weights in {_of(len(changed), len(goodput))} ({recoveries}; table goodput)."


def _frameworks(rows: pd.DataFrame) -> str:
    return listed([describe("framework", each) for each in sorted(set(rows["framework"]))])


def _of(some: int, number: int) -> str:
    return every(number, "setup") if some == number else f"{some} of {counted(number, 'setup')}"


def _which(of: pd.Series) -> str:
    return "" if of.all() else f" with {int(of.sum())} of {len(of)} setups"

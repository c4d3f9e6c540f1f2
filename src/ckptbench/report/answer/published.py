"""The findings of the published studies, each held against tables: found again, refuted or undecided, and by what.

A verdict follows from intervals by a rule. What one machine cannot test is said so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pandas as pd

from ckptbench.analysis.provenance import caption_facts
from ckptbench.analysis.tables.columns import SETUP
from ckptbench.analysis.tables.grouping import groups, records
from ckptbench.analysis.tables.schema import Row
from ckptbench.matrix.interval import NEVER, Interval
from ckptbench.matrix.registry import FRAMEWORKS, KILLED, NATIVE, RESTART, formats_of
from ckptbench.report.answer.labels import capitalized, describe, name
from ckptbench.report.answer.papers import SECTION, SOURCES
from ckptbench.report.answer.quantities import PERCENT, PLAIN, SECONDS, Quantity, Unit
from ckptbench.report.answer.setups import PANEL_COLUMNS, ordered, with_hardware

Tables = Mapping[str, pd.DataFrame]

ALIKE = (
    "model",
    "dataset",
    "optimizer",
    "precision",
    "batch_size",
    "epochs",
    "deterministic",
    "measured_on",
)
"""Setups are compared only where they are equal in these."""
FOUND, REFUTED, UNDECIDED, UNTESTED = "found again", "refuted", "undecided", "not tested here"
MARKS = {FOUND: "", REFUTED: " (no)", UNDECIDED: " (?)", UNTESTED: " (?)"}
"""Behind a comparison."""
DIFFERS = "differs between studies"
NEGLIGIBLE = 0.01
"""An overhead below this is negligible."""
ROJAS_STEPS = 122
"""Steps between two checkpoints of Rojas et al.: five epochs of CIFAR-10 (50,000 samples) in batches of 64 on 32 GPUs. An interval in epochs is scaled by these five."""
ROJAS_EPOCHS = 5
HIDDEN = 0.2
"""A strategy that costs less than this part of what the blocking one does hides most of a checkpoint."""
SHARED = 0.75
"""Two ranks share the work where each has at most this part of what one rank has alone."""
SCALED = 4
"""What changes with scale is told only where the most ranks are so many times the fewest."""
ALIKE_SCALE = 0.25
"""A cost hardly changes with scale where it grows or falls no faster than this power of the ranks: by 1.4 from 1 to 4, by 4 from 1 to 256."""
SEVERAL_NODES = 2


class Verdict(NamedTuple):
    """What the tables say, and the numbers that it rests on: of a finding, or of one comparison on which it rests."""

    word: str
    evidence: str


Rule = Callable[[Tables], Iterator[Verdict]]
"""The comparisons of a finding. None where the tables have nothing on it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence of a published study, and how it is tested here."""

    source: str
    claim: str
    tested: str
    study: str
    """The config that measures it."""
    needs: tuple[str, ...]
    """Tables."""
    compares: str
    """What is compared: the beginning of the evidence."""
    rule: Rule
    needs_nodes: bool = False
    """Whether it can be tested on several nodes alone."""

    def verdict(self, tables: Tables) -> Verdict | None:
        """None where these tables have nothing on it."""
        if self.needs_nodes and tables["provenance"]["nodes_max"].max() < SEVERAL_NODES:
            return Verdict(UNTESTED, "All ranks shared one machine's cores: a study on several nodes tests it")  # fmt: skip
        found = list(self.rule(tables))
        if not found:
            return None
        words = [each.word for each in found]
        shown = "; ".join(f"{each.evidence}{MARKS[each.word]}" for each in found)
        few = f". With fewer than {SCALED} times as many ranks too little changes to judge" if UNTESTED in words else ""  # fmt: skip
        return Verdict(_together(words), f"{self.compares}{shown}{few}")


# ---- Rojas et al.


def _not_negligible(tables: Tables) -> Iterator[Verdict]:
    rows = _native(tables)
    for row in records(rows[rows["paired_lo"].notna()]):
        own = Quantity.of(row, "paired")
        theirs = Quantity.of(row, "paired", 1 / _times_rarer(row["interval"]))
        evidence = f"{_of(row)}, {describe('interval', row['interval'])}: {own.shown(PERCENT)}, so {theirs.shown(PERCENT)}"
        yield _compared(evidence, found=theirs.lo > NEGLIGIBLE, refuted=theirs.hi < NEGLIGIBLE)


def _times_rarer(interval: str) -> float:
    """How many times rarer the checkpoints of Rojas et al. were."""
    known = Interval.parse(interval)
    return (ROJAS_STEPS if known.unit == "steps" else ROJAS_EPOCHS) / known.every


def _extreme_stall(tables: Tables, framework: str, *, lowest: bool) -> Iterator[Verdict]:
    """Whether this framework has the shortest, or the longest, stall among all that were measured alike."""
    rows = _native(tables)
    rows = rows[rows["stall_s_lo"].notna() & _in_default_format(rows)]
    for _, group in groups(rows, [*ALIKE, "ranks", "interval"]):
        if group["framework"].nunique() > 2:
            yield from _extreme(group, framework, "stall_s", SECONDS, lowest=lowest)


def _efficiency(tables: Tables, framework: str) -> Iterator[Verdict]:
    """Whether this framework has the highest efficiency on the most ranks, of which each node has its own."""
    rows = tables["scaling"]
    told = rows["efficiency_lo"].notna() & (rows["reference_ranks"] < rows["ranks"])
    rows = rows[told & (rows["ranks"] == rows["ranks"].max())]
    for _, group in groups(rows, [*ALIKE, "ranks", "reference_ranks"]):
        if group["framework"].nunique() > 1:
            yield from _extreme(group, framework, "efficiency", PERCENT, lowest=False)


def _extreme(
    group: pd.DataFrame, framework: str, column: str, unit: Unit, *, lowest: bool
) -> Iterator[Verdict]:
    """Whether this framework has the lowest, or the highest, number of all. Nothing where it is not in the group."""
    is_own = group["framework"] == framework
    if not is_own.any():
        return
    own, others = group[is_own].iloc[0], group[~is_own]
    lower = others[f"{column}_hi"] < own[f"{column}_lo"]
    higher = others[f"{column}_lo"] > own[f"{column}_hi"]
    beaten, beats = (higher, lower) if lowest else (lower, higher)
    each = [
        f"{name(row['framework'])} {Quantity.of(row, column).shown(unit)}"
        for row in records(group.sort_values(column, ascending=lowest))
    ]
    mode = "deterministic mode, " if own["deterministic"] else ""
    setup = f"{name(own['model'])}, {mode}{describe('ranks', own['ranks'])}"
    yield _compared(f"{setup}: {', '.join(each)}", found=beaten.all(), refuted=beats.any())


def _hardly_changed(tables: Tables) -> Iterator[Verdict]:
    """The stall of the most ranks against that of the fewest."""
    rows = _native(tables)
    rows = rows[rows["stall_s_lo"].notna()]
    for fewest, most in _ends(rows, [*ALIKE, "framework", "format", "interval"]):
        ratio = _ratio(most, fewest, "stall_s")
        times = most["ranks"] / fewest["ranks"]
        limit = times**ALIKE_SCALE
        compared = _compared(
            f"{name(most['framework'])}: {ratio.shown(PLAIN)} times from {fewest['ranks']} to {most['ranks']} ranks",
            found=ratio.lo >= 1 / limit and ratio.hi <= limit,
            refuted=ratio.lo > limit or ratio.hi < 1 / limit,
        )
        yield compared if times >= SCALED else Verdict(UNTESTED, compared.evidence)


def _harmless(tables: Tables) -> Iterator[Verdict]:
    proof = tables["resume_proof"]
    killed = proof[proof["history"].isin(list(KILLED)) & (proof["omit"] == "nothing")]
    exact = killed[killed["deterministic"]]
    if exact.empty:
        return
    same = int(exact["bit_equal"].sum())
    evidence = f"deterministic mode: {same} of {len(exact)} killed and restarted runs end with the bits of the run that was not killed"
    other = killed[~killed["deterministic"] & killed["accuracy_difference"].notna()]
    if len(other):
        points = 100 * other["accuracy_difference"].abs().max()
        evidence += f"; default mode: the accuracy of {len(other)} runs differs by {points:.2g} points at most"
    yield Verdict(FOUND if same == len(exact) else REFUTED, evidence)


def _determinism_costs(tables: Tables) -> Iterator[Verdict]:
    rows = tables["determinism_cost"]
    for row in records(rows[rows["cost_lo"].notna()]):
        cost = Quantity.of(row, "cost")
        evidence = f"{_of(row)}: {cost.shown(PERCENT)}"
        yield _compared(evidence, found=cost.lo > NEGLIGIBLE, refuted=cost.hi < NEGLIGIBLE)


# ---- DeepFreeze


def _hides(tables: Tables) -> Iterator[Verdict]:
    """What `deepfreeze` costs in all against `native`: a stall can become slower steps."""
    rows = _setups(tables)
    rows = rows[rows["overhead"].notna()]
    blocking = rows[(rows["strategy"] == NATIVE.name) & _in_default_format(rows)]
    ours = rows[rows["strategy_name"] == "deepfreeze"]
    alike = [*ALIKE, "framework", "ranks", "interval", "recovery"]
    known = {tuple(key.values()): records(group)[0] for key, group in groups(blocking, alike)}
    for own in records(ours):
        other = known.get(tuple(own[name] for name in alike))
        if other is None:
            continue
        ratio = _ratio(own, other, "overhead")
        of = f"{_of(own)}, {describe('strategy', own['strategy'])}, {describe('interval', own['interval'])}"
        evidence = f"{of}: {ratio.shown(PLAIN)} times as much"
        yield _compared(evidence, found=ratio.hi < HIDDEN, refuted=ratio.lo > HIDDEN)


def _shares(tables: Tables) -> Iterator[Verdict]:
    """Memory of each rank, with the most ranks against the fewest."""
    rows = tables["strategies"]
    ours = rows["strategy_name"] == "deepfreeze"
    rows = rows[ours & rows["memory_bytes"].notna()]
    for fewest, most in _ends(rows, [*ALIKE, "framework", "strategy", "interval"]):
        part = _ratio(most, fewest, "memory_bytes")
        of = f"{name(most['framework'])}, {name(most['model'])}: each of {most['ranks']} ranks"
        evidence = f"{of} takes {part.shown(PLAIN)} times the memory that one takes alone"
        yield _compared(evidence, found=part.hi <= SHARED, refuted=part.lo > SHARED)


# ---- ULFM


def _without_checkpoint(tables: Tables) -> Iterator[Verdict]:
    """The goodput of runs without any checkpoint: where survivors go on, and where all start again from the beginning.

    It is that of the ranks that are paid for: on one machine a survivor has the cores of the lost rank too, and its steps are faster.
    """
    rows = tables["goodput"]
    known = (rows["failures"] > 0) & rows["goodput_of_ranks"].notna()
    rows = rows[known & (rows["interval"] == str(NEVER))]
    for _, group in groups(rows, [*ALIKE, "framework", "ranks", "history"]):
        going_on = group[group["recovery_name"] == "ulfm"]
        again = group[group["recovery"] == RESTART.name]
        if going_on.empty or again.empty:
            continue
        own, other = (
            Quantity.of(records(each)[0], "goodput_of_ranks") for each in (going_on, again)
        )
        evidence = f"{_of(records(going_on)[0])}: {own.shown(PERCENT)} where survivors go on, and {other.shown(PERCENT)} where all start again"
        yield _compared(evidence, found=own.lo > other.hi, refuted=own.hi < other.lo)


def _which_parallelism(tables: Tables) -> Iterator[Verdict]:
    """Runs without any checkpoint whose recovery takes what a rank has lost from another one, if there is one: did they have to begin anew?"""
    rows = tables["goodput"]
    own = (rows["recovery_name"] == "reinit") & (rows["interval"] == str(NEVER))
    for row in records(rows[own & (rows["failures"] > 0)]):
        is_held = FRAMEWORKS[row["framework"]].parts(row["ranks"]) < row["ranks"]
        went_on = row["launch_s"] + row["import_s"] == 0
        where = "others hold what was lost" if is_held else "no other holds what was lost"
        evidence = f"{_of(row)}: {where}, and {'training goes on' if went_on else 'all start from the beginning'}"
        yield _compared(evidence, found=went_on == is_held, refuted=went_on != is_held)


FINDINGS = (
    Finding("rojas", "The cost of checkpoints is not negligible.", f"overhead against baselines of the same seed, then scaled to a checkpoint every {ROJAS_STEPS} steps, as there on 32 GPUs (five epochs of CIFAR-10 in batches of 64). Negligible is less than {NEGLIGIBLE:.0%}".replace("%", " %"), "config/config.yaml", ("overhead", "checkpoint_cost"), "Overhead. ", _not_negligible),
    Finding("rojas", "TensorFlow, which writes HDF5, has the lowest cost.", "stall of one checkpoint; the lowest is the one that no interval of another overlaps", "config/config.yaml", ("overhead", "checkpoint_cost"), "Stall. ", partial(_extreme_stall, framework="tensorflow", lowest=True)),
    Finding("rojas", "Chainer has the highest cost, as one process writes while the others wait.", "in the same way; here all three write with one process while the others wait", "config/config.yaml", ("overhead", "checkpoint_cost"), "Stall. ", partial(_extreme_stall, framework="chainer", lowest=False)),
    Finding("rojas", "Scale hardly changes the cost of one checkpoint.", f"stall with the most ranks against the fewest, at least {SCALED} times fewer. Hardly: by no more than the power {ALIKE_SCALE} of the ranks", "config/config.yaml", ("overhead", "checkpoint_cost"), "Stall. ", _hardly_changed),
    Finding("rojas", "PyTorch scales best.", "throughput of the most ranks against that of the fewest, without checkpoints", "config/studies/rojas-abci.yaml", ("scaling",), "Efficiency. ", partial(_efficiency, framework="pytorch"), needs_nodes=True),
    Finding("rojas", "A restart does not harm training.", "killed and restarted runs are compared bit for bit with the run that was not killed", "config/studies/findings.yaml", ("resume_proof",), "", _harmless),
    Finding("rojas", "Determinism has a cost.", f"training time of the deterministic mode against the default mode; a cost is more than {NEGLIGIBLE:.0%}".replace("%", " %"), "config/studies/findings.yaml", ("determinism_cost",), "Cost. ", _determinism_costs),
    Finding("deepfreeze", "Serialization and I/O can be hidden behind training.", f"overhead (stall and slower steps) of deepfreeze against native in the framework's own format; hidden is less than {HIDDEN} times as much", "config/studies/findings.yaml", ("overhead", "checkpoint_cost"), "Overhead against that of native. ", _hides),
    Finding("deepfreeze", "The ranks share the work.", f"memory of each rank, several ranks against one; shared is at most {SHARED} times as much. On one machine they share the disk, so its speed shows nothing", "config/studies/findings.yaml", ("strategies",), "", _shares),
    Finding("ulfm", "Training recovers without a checkpoint, as the survivors hold the model.", "a rank is killed in runs without checkpoints: survivors go on, or all start again. More useful time of all ranks that are paid for shows it", "config/studies/findings.yaml", ("goodput",), "Useful part of the ranks' time. ", _without_checkpoint),
    Finding("ulfm", "Data parallelism needs no checkpoint to go on after a loss, and sharding the model over the ranks does.", "a rank is killed in runs without checkpoints: a new one gets what was lost from a rank that holds the same, or all start from the beginning. Hybrid sharding, with replicas, should need none", "config/studies/parallelism.yaml", ("goodput",), "", _which_parallelism),
)  # fmt: skip
TABLES = tuple(sorted({table for finding in FINDINGS for table in finding.needs} | {"provenance"}))
"""The tables that verdicts are made from."""
TITLE = "# The papers: figures and findings"
INTRODUCTION = f"""\
{SECTION}
## Findings

Do tables measured here show what the papers found? A rule decides. For your machine, run the default study, and `config/studies/findings.yaml` in another checkout,
then

    python -m ckptbench.workflow write-published --tables results/tables OTHER/results/tables > findings.md

- *Found again*, *refuted*: the intervals show it, on the machine that is named. All conclusive comparisons agree; others are marked (?).
- *Undecided*: none is conclusive, or they disagree; refuting ones are marked (no).
- *Not tested here*: the machine lacks what it needs.

In brackets: 95 % intervals; those of *times* combine two.
"""


def published(studies: Sequence[Tables]) -> str:
    """The page, from the tables of several studies: for each finding all that decide it, or else the first that has something on it."""
    lines = [TITLE, "", INTRODUCTION]
    lines += [f"[{number}] {each}.\n" for number, each in enumerate(_machines(studies), 1)]
    for source, title in SOURCES.items():
        lines += [f"### {title}", ""]
        for finding in FINDINGS:
            if finding.source == source:
                lines += [_section(finding, studies), ""]
    return "\n".join(lines)


def _machines(studies: Sequence[Tables]) -> list[str]:
    """Where and when the tables were measured, each once."""
    return list(dict.fromkeys(caption_facts(tables["provenance"]) for tables in studies))


def _section(finding: Finding, studies: Sequence[Tables]) -> str:
    head = f"**{finding.claim}**\n\n- Test: {finding.tested} (`{finding.study}`)."
    told = [
        (verdict, tables) for tables in studies if (verdict := finding.verdict(tables)) is not None
    ]
    deciding = [each for each in told if each[0].word in (FOUND, REFUTED)]
    shown = deciding or told[:1]
    if not shown:
        return f"{head}\n- **{capitalized(UNTESTED)}.** No table shows it: run `{finding.study}`."
    lines = [head]
    differs = len({verdict.word for verdict, _ in shown}) > 1
    if differs:
        lines.append(f"- **{capitalized(DIFFERS)}.**")
    for verdict, tables in shown:
        number = _machines(studies).index(caption_facts(tables["provenance"])) + 1
        where = f" [{number}]" if verdict.word != UNTESTED else ""
        lines.append(f"- **{capitalized(verdict.word)}.** {verdict.evidence}{where}.")
    return "\n".join(lines)


def _setups(tables: Tables) -> pd.DataFrame:
    """One row per setup with checkpoints, in order: its overhead, and where known its stall."""
    stalls = tables["checkpoint_cost"][[*SETUP, "stall_s", "stall_s_lo", "stall_s_hi"]]
    rows = tables["overhead"].merge(stalls, on=list(SETUP), how="left")
    columns = (*PANEL_COLUMNS, "framework", "ranks", "strategy", "format", "interval")
    return ordered(with_hardware(rows), columns)


def _native(tables: Tables) -> pd.DataFrame:
    rows = _setups(tables)
    return rows[(rows["strategy"] == NATIVE.name) & (rows["recovery"] == RESTART.name)]


def _in_default_format(rows: pd.DataFrame) -> pd.Series[bool]:
    defaults = {framework: formats_of(framework, NATIVE.name)[0] for framework in set(rows["framework"])}  # fmt: skip
    return rows["format"] == rows["framework"].map(defaults)


def _ends(rows: pd.DataFrame, alike: Sequence[str]) -> Iterator[tuple[Row, Row]]:
    """Of the rows that are alike, those with the fewest and the most ranks, where these are not the same."""
    for _, group in groups(rows, list(alike)):
        fewest, most = records(group.sort_values("ranks").iloc[[0, -1]])
        if fewest["ranks"] < most["ranks"]:
            yield fewest, most


def _ratio(above: Row, below: Row, column: str) -> Quantity:
    """The ratio of two numbers, with the least and the most that it can be within their intervals: wider than its own interval. NaN where unknown."""
    over, under = Quantity.of(above, column), Quantity.of(below, column)
    if not under.lo > 0:
        return Quantity(over.value / under.value)
    return Quantity(over.value / under.value, over.lo / under.hi, over.hi / under.lo)


def _of(row: Row) -> str:
    return ", ".join([name(row["framework"]), name(row["model"]), describe("ranks", row["ranks"])])  # fmt: skip


def _together(words: Sequence[str]) -> str:
    """Of several comparisons: found where all that can tell find it, refuted where all that can tell refute it."""
    told = set(words) - {UNDECIDED, UNTESTED}
    if set(words) == {UNTESTED}:
        return UNTESTED
    return next(iter(told)) if len(told) == 1 else UNDECIDED


def _compared(evidence: str, *, found: bool, refuted: bool) -> Verdict:
    """Of one comparison, whose intervals may tell neither."""
    return Verdict(FOUND if found else REFUTED if refuted else UNDECIDED, evidence)

"""The findings of the published studies, each held against tables: found again, refuted or undecided, and by what.

A verdict follows from intervals by a rule. What one machine cannot test is said so.
"""

from __future__ import annotations

import math
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
from ckptbench.matrix.named import has_name
from ckptbench.matrix.registry import KILLED, NATIVE, RECOVERIES, RESTART, STRATEGIES, formats_of
from ckptbench.report.answer.labels import capitalized, describe, name
from ckptbench.report.answer.quantities import PERCENT, PLAIN, SECONDS, Known
from ckptbench.report.answer.setups import PANEL_COLUMNS, ordered, with_hardware

Tables = Mapping[str, pd.DataFrame]

ALIKE = ("model", "dataset", "batch_size", "epochs", "deterministic", "measured_on")
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
"""A strategy that stalls for less than this part of what the blocking one does hides most of a checkpoint."""
SHARED = 0.75
"""Two ranks share the work where each has at most this part of what one rank has alone."""
SCALED = 4
"""What changes with scale is told only where the most ranks are so many times the fewest."""
ALIKE_SCALE = 0.25
"""A cost hardly changes with scale where it grows or falls no faster than this power of the ranks: by 1.4 from 1 to 4, by 4 from 1 to 256."""
SEVERAL_NODES = 2
SOURCES = {
    "rojas": "Rojas et al. 2020, arXiv:2012.00825",
    "deepfreeze": "Nicolae et al. 2020, DeepFreeze, doi:10.1109/CCGrid49817.2020.00-76",
    "ulfm": "Amatya et al. 2017, arXiv:1709.03316",
}


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
            return Verdict(UNTESTED, "All ranks were on one machine and shared its cores. A study on several nodes tests it")  # fmt: skip
        found = list(self.rule(tables))
        if not found:
            return None
        words = [each.word for each in found]
        shown = "; ".join(f"{each.evidence}{MARKS[each.word]}" for each in found)
        few = f". With fewer than {SCALED} times as many ranks too little changes to tell" if UNTESTED in words else ""  # fmt: skip
        return Verdict(_together(words), f"{self.compares}{shown}{few}")


# ---- Rojas et al.


def _not_negligible(tables: Tables) -> Iterator[Verdict]:
    rows = _native(tables)
    rows = rows[rows["paired_lo"].notna()]
    for row in records(rows):
        rarer = _times_rarer(row["interval"])
        theirs = {f"r{end}": row[f"paired{end}"] / rarer for end in ("", "_lo", "_hi")}
        above, below = theirs["r_lo"] > NEGLIGIBLE, theirs["r_hi"] < NEGLIGIBLE
        yield _compared(f"{_of(row)}, {describe('interval', row['interval'])}: {Known.of(row, 'paired').shown(PERCENT)}, so {Known.of(theirs, 'r').shown(PERCENT)}", found=above, refuted=below)  # fmt: skip


def _times_rarer(interval: str) -> float:
    """How many times rarer the checkpoints of Rojas et al. were."""
    known = Interval.parse(interval)
    return (ROJAS_STEPS if known.unit == "steps" else ROJAS_EPOCHS) / known.every


def _extreme(tables: Tables, framework: str, *, lowest: bool) -> Iterator[Verdict]:
    """Whether this framework has the shortest, or the longest, stall among all that were measured alike."""
    rows = _native(tables)
    rows = rows[rows["stall_s_lo"].notna() & _in_default_format(rows)]
    for key, group in groups(rows, [*ALIKE, "ranks", "interval"]):
        if group["framework"].nunique() < 3 or framework not in set(group["framework"]):
            continue
        own = group[group["framework"] == framework].iloc[0]
        others = group[group["framework"] != framework]
        shorter, longer = others["stall_s_hi"] < own["stall_s_lo"], others["stall_s_lo"] > own["stall_s_hi"]  # fmt: skip
        beaten, beats = (longer, shorter) if lowest else (shorter, longer)
        ordered = group.sort_values("stall_s", ascending=lowest)
        each = [f"{name(row['framework'])} {Known.of(row, 'stall_s').shown(SECONDS)}" for row in records(ordered)]  # fmt: skip
        setup = [name(key["model"]), *(["deterministic mode"] if key["deterministic"] else []), describe("ranks", key["ranks"])]  # fmt: skip
        yield _compared(f"{', '.join(setup)}: {', '.join(each)}", found=beaten.all(), refuted=beats.any())  # fmt: skip


def _hardly_changed(tables: Tables) -> Iterator[Verdict]:
    """The stall of the most ranks against that of the fewest."""
    rows = _native(tables)
    rows = rows[rows["stall_s_lo"].notna()]
    for _, group in groups(rows, [*ALIKE, "framework", "format", "interval"]):
        ends = group.sort_values("ranks").iloc[[0, -1]]
        first, last = records(ends)
        if first["ranks"] == last["ranks"]:
            continue
        least, most = _ratio_ends(last, first, "stall_s")
        times = last["ranks"] / first["ranks"]
        limit = times**ALIKE_SCALE
        inside = least >= 1 / limit and most <= limit
        outside = least > limit or most < 1 / limit
        ratio = {"r": last["stall_s"] / first["stall_s"], "r_lo": least, "r_hi": most}
        compared = _compared(f"{name(first['framework'])}: {Known.of(ratio, 'r').shown(PLAIN)} times from {first['ranks']} to {last['ranks']} ranks", found=inside, refuted=outside)  # fmt: skip
        yield compared if times >= SCALED else Verdict(UNTESTED, compared.evidence)


def _efficiency(tables: Tables, framework: str) -> Iterator[Verdict]:
    """Whether this framework has the highest efficiency on the most ranks, of which each node has its own."""
    rows = tables["scaling"]
    told = rows["efficiency_lo"].notna() & (rows["reference_ranks"] < rows["ranks"])
    rows = rows[told & (rows["ranks"] == rows["ranks"].max())]
    for _, group in groups(rows, [*ALIKE, "ranks", "reference_ranks"]):
        if framework not in set(group["framework"]) or group["framework"].nunique() == 1:
            continue
        own = group[group["framework"] == framework].iloc[0]
        others = group[group["framework"] != framework]
        best = (others["efficiency_hi"] < own["efficiency_lo"]).all()
        beaten = (others["efficiency_lo"] > own["efficiency_hi"]).any()
        each = [
            f"{_of(row)} {Known.of(row, 'efficiency').shown(PERCENT)}" for row in records(group)
        ]
        yield _compared(f"{', '.join(each)}", found=best, refuted=beaten)  # fmt: skip


def _harmless(tables: Tables) -> Iterator[Verdict]:
    proof = tables["resume_proof"]
    killed = proof[proof["history"].isin(list(KILLED)) & (proof["omit"] == "nothing")]
    exact = killed[killed["deterministic"]]
    if exact.empty:
        return
    same = int(exact["bit_equal"].sum())
    word = FOUND if same == len(exact) else REFUTED
    shown = [f"deterministic mode: {same} of {len(exact)} killed and restarted runs end with the bits of the run that was not killed"]  # fmt: skip
    other = killed[~killed["deterministic"] & killed["accuracy_difference"].notna()]
    if len(other):
        shown.append(f"default mode: the accuracy of {len(other)} runs differs by {100 * other['accuracy_difference'].abs().max():.2g} points at most")  # fmt: skip
    yield Verdict(word, "; ".join(shown))


def _determinism_costs(tables: Tables) -> Iterator[Verdict]:
    rows = tables["determinism_cost"]
    rows = rows[rows["cost_lo"].notna()]
    for row in records(rows):
        above, below = row["cost_lo"] > NEGLIGIBLE, row["cost_hi"] < NEGLIGIBLE
        yield _compared(f"{_of(row)}: {Known.of(row, 'cost').shown(PERCENT)}", found=above, refuted=below)  # fmt: skip


# ---- DeepFreeze


def _of_deepfreeze(rows: pd.DataFrame) -> pd.Series[bool]:
    return pd.Series([has_name(each, ["deepfreeze"], STRATEGIES) for each in rows["strategy"]], rows.index, dtype=bool)  # fmt: skip


def _hides(tables: Tables) -> Iterator[Verdict]:
    """The stall of `deepfreeze` against that of `native`."""
    rows = _setups(tables)
    rows = rows[rows["stall_s"].notna()]
    blocking = rows[(rows["strategy"] == NATIVE.name) & _in_default_format(rows)]
    ours = rows[_of_deepfreeze(rows)]
    alike = [*ALIKE, "framework", "ranks", "interval", "recovery"]
    known = {tuple(key.values()): records(group)[0] for key, group in groups(blocking, alike)}
    for own in records(ours):
        other = known.get(tuple(own[name] for name in alike))
        if other is None:
            continue
        lo, hi = _ratio_ends(own, other, "stall_s")
        ratio = {"r": own["stall_s"] / other["stall_s"], "r_lo": lo, "r_hi": hi}
        yield _compared(f"{_of(own)}, {describe('strategy', own['strategy'])}, {describe('interval', own['interval'])}: {Known.of(ratio, 'r').shown(PLAIN)} times as long", found=hi < HIDDEN, refuted=lo > HIDDEN)  # fmt: skip


def _shares(tables: Tables) -> Iterator[Verdict]:
    """Memory of each rank, with the most ranks against the fewest."""
    rows = tables["strategies"]
    rows = rows[_of_deepfreeze(rows) & rows["memory_bytes"].notna()]
    for _, group in groups(rows, [*ALIKE, "framework", "strategy", "interval"]):
        first, last = records(group.sort_values("ranks").iloc[[0, -1]])
        if first["ranks"] == last["ranks"]:
            continue
        lo, hi = _ratio_ends(last, first, "memory_bytes", ("memory_bytes_lo", "memory_bytes_hi"))
        part = {"r": last["memory_bytes"] / first["memory_bytes"], "r_lo": lo, "r_hi": hi}
        yield _compared(f"{name(first['framework'])}, {name(first['model'])}: each of {last['ranks']} ranks takes {Known.of(part, 'r').shown(PLAIN)} times the memory that one takes alone", found=hi <= SHARED, refuted=lo > SHARED)  # fmt: skip


# ---- ULFM


def _without_checkpoint(tables: Tables) -> Iterator[Verdict]:
    """The goodput of runs without any checkpoint: where survivors go on, and where all start again from the beginning.

    It is that of the ranks that are paid for: on one machine a survivor has the cores of the lost rank too, and its steps are faster.
    """
    rows = tables["goodput"]
    rows = rows[(rows["interval"] == str(NEVER)) & (rows["failures"] > 0) & rows["goodput_of_ranks"].notna()]  # fmt: skip
    for _, group in groups(rows, [*ALIKE, "framework", "ranks", "history"]):
        going_on = group[[has_name(each, ["ulfm"], RECOVERIES) for each in group["recovery"]]]
        again = group[group["recovery"] == RESTART.name]
        if going_on.empty or again.empty:
            continue
        own, other = records(going_on)[0], records(again)[0]
        better = own["goodput_of_ranks_lo"] > other["goodput_of_ranks_hi"]
        worse = own["goodput_of_ranks_hi"] < other["goodput_of_ranks_lo"]
        parts = [Known.of(row, "goodput_of_ranks").shown(PERCENT) for row in (own, other)]
        yield _compared(f"{_of(own)}: {parts[0]} where survivors go on, and {parts[1]} where all start again", found=better, refuted=worse)  # fmt: skip


FINDINGS = (
    Finding("rojas", "The cost of checkpoints is not negligible.", f"overhead against baselines of the same seed, with each framework's own way to save; then what that would be with a checkpoint every {ROJAS_STEPS} steps, as in the study on 32 GPUs (five epochs of CIFAR-10 in batches of 64). Negligible is less than {NEGLIGIBLE:.0%}".replace("%", " %"), "config/config.yaml", ("overhead", "checkpoint_cost"), "Overhead. ", _not_negligible),
    Finding("rojas", "TensorFlow, which writes HDF5, has the lowest cost.", "stall of one checkpoint, frameworks side by side; the lowest is the one that no interval of another overlaps", "config/config.yaml", ("overhead", "checkpoint_cost"), "Stall. ", partial(_extreme, framework="tensorflow", lowest=True)),
    Finding("rojas", "Chainer has the highest cost, as one process writes while the others wait.", "in the same way; here all three write with one process while the others wait", "config/config.yaml", ("overhead", "checkpoint_cost"), "Stall. ", partial(_extreme, framework="chainer", lowest=False)),
    Finding("rojas", "Scale hardly changes the cost of one checkpoint.", f"stall with the most ranks against that with the fewest, where these are at least {SCALED} times as many. Hardly: by no more than the power {ALIKE_SCALE} of the ranks", "config/config.yaml", ("overhead", "checkpoint_cost"), "Stall. ", _hardly_changed),
    Finding("rojas", "PyTorch scales best.", "throughput of the most ranks against that of the fewest, without checkpoints", "config/studies/rojas-abci.yaml", ("scaling",), "Efficiency. ", partial(_efficiency, framework="pytorch"), needs_nodes=True),
    Finding("rojas", "A restart does not harm training.", "runs are killed, restarted, and compared bit for bit with the run that was not killed", "config/studies/findings.yaml", ("resume_proof",), "", _harmless),
    Finding("rojas", "Determinism has a cost.", f"training time of the deterministic mode against the default mode; a cost is more than {NEGLIGIBLE:.0%}".replace("%", " %"), "config/studies/findings.yaml", ("determinism_cost",), "Cost. ", _determinism_costs),
    Finding("deepfreeze", "Serialization and I/O can be hidden behind training.", f"stall of the strategy deepfreeze against that of native in the framework's own format; hidden is less than {HIDDEN} times as long", "config/studies/findings.yaml", ("overhead", "checkpoint_cost"), "Stall against that of native. ", _hides),
    Finding("deepfreeze", "The ranks share the work.", f"memory of each rank, with several ranks against one; shared is at most {SHARED} times as much. On one machine they share the disk, so its speed tells nothing", "config/studies/findings.yaml", ("strategies",), "", _shares),
    Finding("ulfm", "Training recovers without a checkpoint, as the survivors hold the model.", "a rank is killed in runs without checkpoints: survivors go on, or all start again. More useful time, of all ranks that are paid for, shows it", "config/studies/findings.yaml", ("goodput",), "Useful part of the ranks' time. ", _without_checkpoint),
)  # fmt: skip
TABLES = tuple(sorted({table for finding in FINDINGS for table in finding.needs} | {"provenance"}))
"""The tables that verdicts are made from."""
TITLE = "# Findings of the published studies"
INTRODUCTION = """\
What did the three studies find that ckptbench reproduces, and do tables that were measured here show the same? A rule makes this page. For your own machine, run the default study, and
`config/studies/findings.yaml` in another checkout, and then

    python scripts/write_published.py --tables results/tables OTHER/results/tables > findings.md

- *Found again*, *refuted*: the intervals show it, on the machine that is named. All comparisons that tell say the same; those that do not tell are marked (?).
- *Undecided*: none tells, or they tell different things; refuting ones are marked (no).
- *Not tested here*: this needs what the machine does not have.

In brackets are 95 % intervals; those of one number as times another are what two such intervals allow, which is wider.
"""


def published(studies: Sequence[Tables]) -> str:
    """The page, from the tables of several studies: for each finding all that decide it, or else the first that has something on it."""
    lines = [TITLE, "", INTRODUCTION]
    lines += [f"[{number}] {each}.\n" for number, each in enumerate(_machines(studies), 1)]
    for source, title in SOURCES.items():
        lines += [f"## {title}", ""]
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
        return f"{head}\n- **{capitalized(UNTESTED)}.** No table at hand has anything on it: run `{finding.study}`."
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
    """One row a setup with checkpoints, in order: its overhead, and where known its stall."""
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


def _ratio_ends(
    above: Row, below: Row, column: str, ends: tuple[str, str] | None = None
) -> tuple[float, float]:
    """The least and the most that the ratio of two numbers can be within their intervals: wider than its own interval. NaN where unknown."""
    lo, hi = ends or (f"{column}_lo", f"{column}_hi")
    if not below[lo] > 0:
        return math.nan, math.nan
    return above[lo] / below[hi], above[hi] / below[lo]


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

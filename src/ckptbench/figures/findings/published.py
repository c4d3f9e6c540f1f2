"""The findings of the published studies, each held against tables: found again, refuted, or not told here, and by what.

A verdict follows from intervals by a rule. Where they cannot tell, it says so: one machine is not a supercomputer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from ckptbench.analysis.provenance import caption_facts
from ckptbench.analysis.tables.grouping import groups, records
from ckptbench.figures.findings.costs import setups
from ckptbench.figures.findings.words import PERCENT, SECONDS, Row, Unit, amount, capitalized
from ckptbench.figures.kit.labels import describe, name
from ckptbench.matrix.catalogue import NATIVE, RESTART
from ckptbench.matrix.interval import NEVER

Tables = Mapping[str, pd.DataFrame]

FOUND, REFUTED, UNTOLD = "found again", "refuted", "not told"
NEGLIGIBLE = 0.01
"""An overhead below this is negligible."""
HIDDEN = 0.2
"""A strategy that stalls for less than this part of what the blocking one does hides most of a checkpoint."""
SHARED = 0.75
"""Two ranks share the work where each has at most this part of what one rank has alone."""
ALIKE_SCALE = 2.0
"""A cost hardly changes with scale where it stays within this factor."""
SOURCES = {
    "rojas": "Rojas et al. 2020, arXiv:2012.00825",
    "deepfreeze": "Nicolae et al. 2020, DeepFreeze, doi:10.1109/CCGrid49817.2020.00-76",
    "ulfm": "Amatya et al. 2017, arXiv:1709.03316",
}


class Verdict(NamedTuple):
    """What the tables say, and the numbers that it rests on."""

    word: str
    evidence: str


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
    rule: Callable[[Tables], Verdict | None]
    """None where these tables have nothing on it."""


# ---- Rojas et al.


def _not_negligible(tables: Tables) -> Verdict | None:
    rows = _native(tables)
    rows = rows[rows["paired_lo"].notna()]
    if rows.empty:
        return None
    above, below = rows["paired_lo"] > NEGLIGIBLE, rows["paired_hi"] < NEGLIGIBLE
    word = FOUND if above.any() and not below.any() else REFUTED if below.all() else UNTOLD
    shown = [f"{_of(row)}, {describe('interval', row['interval'])}: {amount(row, 'paired', PERCENT)}" for row in records(rows)]  # fmt: skip
    return Verdict(word, f"Overhead. {'; '.join(shown)}")


def _lowest(framework: str) -> Callable[[Tables], Verdict | None]:
    return lambda tables: _extreme(tables, framework, lowest=True)


def _highest(framework: str) -> Callable[[Tables], Verdict | None]:
    return lambda tables: _extreme(tables, framework, lowest=False)


def _extreme(tables: Tables, framework: str, *, lowest: bool) -> Verdict | None:
    """Whether this framework has the shortest, or the longest, stall among all that were measured alike."""
    rows = _native(tables)
    rows = rows[rows["stall_s_lo"].notna()]
    words, shown = [], []
    for key, group in groups(rows, ["model", "dataset", "batch_size", "ranks", "interval"]):
        if group["framework"].nunique() < 3 or framework not in set(group["framework"]):
            continue
        own = group[group["framework"] == framework].iloc[0]
        others = group[group["framework"] != framework]
        shorter, longer = others["stall_s_hi"] < own["stall_s_lo"], others["stall_s_lo"] > own["stall_s_hi"]  # fmt: skip
        beaten, beats = (longer, shorter) if lowest else (shorter, longer)
        words.append(FOUND if beaten.all() else REFUTED if beats.any() else UNTOLD)
        ordered = group.sort_values("stall_s", ascending=lowest)
        each = [f"{name(row['framework'])} {amount(row, 'stall_s', SECONDS)}" for row in records(ordered)]  # fmt: skip
        shown.append(f"{describe('ranks', key['ranks'])}: {', '.join(each)}")
    return Verdict(_together(words), f"Stall. {'; '.join(shown)}") if words else None


def _hardly_changed(tables: Tables) -> Verdict | None:
    """The stall of the most ranks against that of the fewest."""
    rows = _native(tables)
    rows = rows[rows["stall_s_lo"].notna()]
    words, shown = [], []
    for _, group in groups(rows, ["framework", "model", "dataset", "batch_size", "format", "interval"]):  # fmt: skip
        ends = group.sort_values("ranks").iloc[[0, -1]]
        first, last = records(ends)
        if first["ranks"] == last["ranks"]:
            continue
        least, most = last["stall_s_lo"] / first["stall_s_hi"], last["stall_s_hi"] / first["stall_s_lo"]  # fmt: skip
        inside = least >= 1 / ALIKE_SCALE and most <= ALIKE_SCALE
        outside = least > ALIKE_SCALE or most < 1 / ALIKE_SCALE
        words.append(FOUND if inside else REFUTED if outside else UNTOLD)
        ratio = {"r": last["stall_s"] / first["stall_s"], "r_lo": least, "r_hi": most}
        shown.append(f"{name(first['framework'])}: {amount(ratio, 'r', Unit(''))} times from {first['ranks']} to {last['ranks']} ranks")  # fmt: skip
    return Verdict(_together(words), f"Stall. {'; '.join(shown)}") if words else None


def _harmless(tables: Tables) -> Verdict | None:
    proof = tables["resume_proof"]
    killed = proof[proof["history"].str.startswith("killed") & (proof["omit"] == "nothing")]
    exact = killed[killed["deterministic"]]
    if exact.empty:
        return None
    same = int(exact["bit_equal"].sum())
    word = FOUND if same == len(exact) else REFUTED
    shown = [f"deterministic mode: {same} of {len(exact)} killed and restarted runs end with the bits of the run that was not killed"]  # fmt: skip
    other = killed[~killed["deterministic"] & killed["accuracy_difference"].notna()]
    if len(other):
        shown.append(f"default mode: the accuracy of {len(other)} runs differs by {100 * other['accuracy_difference'].abs().max():.2g} points at most")  # fmt: skip
    return Verdict(word, "; ".join(shown))


def _determinism_costs(tables: Tables) -> Verdict | None:
    rows = tables["determinism_cost"]
    rows = rows[rows["cost_lo"].notna()]
    if rows.empty:
        return None
    above = rows["cost_lo"] > 0
    word = FOUND if above.any() else REFUTED if (rows["cost_hi"] < NEGLIGIBLE).all() else UNTOLD
    shown = [f"{_of(row)}: {amount(row, 'cost', PERCENT)}" for row in records(rows)]
    return Verdict(word, f"Cost. {'; '.join(shown)}")


# ---- DeepFreeze


def _hides(tables: Tables) -> Verdict | None:
    """The stall of `deepfreeze` against that of `native`."""
    rows = setups(tables)
    rows = rows[rows["stall_s"].notna()]
    keys = ["framework", "model", "dataset", "batch_size", "ranks", "interval"]
    words, shown = [], []
    for _, group in groups(rows, keys):
        ours = group[group["strategy"].str.startswith("deepfreeze")]
        blocking = group[group["strategy"] == NATIVE.name]
        if ours.empty or blocking.empty:
            continue
        own, other = records(ours)[0], records(blocking)[0]
        lo = own["stall_s_lo"] / other["stall_s_hi"]
        hi = own["stall_s_hi"] / other["stall_s_lo"]
        ratio = {"r": own["stall_s"] / other["stall_s"], "r_lo": lo, "r_hi": hi}
        known = pd.notna(lo)
        words.append(UNTOLD if not known else FOUND if hi < HIDDEN else REFUTED if lo > 1 else UNTOLD)  # fmt: skip
        shown.append(f"{_of(own)}, {describe('interval', own['interval'])}: {amount(ratio, 'r', Unit(''))} times as long")  # fmt: skip
    return Verdict(_together(words), f"Stall against that of native. {'; '.join(shown)}") if words else None  # fmt: skip


def _shares(tables: Tables) -> Verdict | None:
    """Memory of each rank, with the most ranks against the fewest."""
    rows = tables["strategies"]
    rows = rows[rows["strategy"].str.startswith("deepfreeze") & rows["memory_bytes"].notna()]
    words, shown = [], []
    for _, group in groups(rows, ["framework", "model", "dataset", "strategy", "interval"]):
        first, last = records(group.sort_values("ranks").iloc[[0, -1]])
        if first["ranks"] == last["ranks"]:
            continue
        part = last["memory_bytes"] / first["memory_bytes"]
        words.append(FOUND if part <= SHARED else REFUTED)
        shown.append(f"{name(first['framework'])}, {name(first['model'])}: each of {last['ranks']} ranks takes {part:.2f} times the memory that one takes alone")  # fmt: skip
    return Verdict(_together(words), "; ".join(shown)) if words else None


# ---- ULFM


def _without_checkpoint(tables: Tables) -> Verdict | None:
    """What a failure costs without any checkpoint: where survivors go on, and where all start again."""
    rows = tables["goodput"]
    rows = rows[(rows["interval"] == str(NEVER)) & (rows["failures"] > 0)]
    words, shown = [], []
    for _, group in groups(rows, ["model", "dataset", "ranks", "history"]):
        going_on = group[group["recovery"].str.startswith("ulfm")]
        again = group[group["recovery"] == RESTART.name]
        if going_on.empty or again.empty:
            continue
        own, other = records(going_on)[0], records(again)[0]
        costs = [row["parts_s"] / row["failures"] for row in (own, other)]
        words.append(FOUND if costs[0] < costs[1] else REFUTED)
        shown.append(f"{_of(own)}: a failure costs {costs[0]:.2g} s where survivors go on, {costs[1]:.2g} s where all start again")  # fmt: skip
    return Verdict(_together(words), "; ".join(shown)) if words else None


FINDINGS = (
    Finding("rojas", "The cost of checkpoints is not negligible.", "overhead against baselines of the same seed, with each framework's own way to save", "config/config.yaml", ("overhead", "checkpoint_cost", "sizes"), _not_negligible),
    Finding("rojas", "TensorFlow, which writes HDF5, has the lowest cost.", "stall of one checkpoint, frameworks side by side", "config/config.yaml", ("overhead", "checkpoint_cost", "sizes"), _lowest("tensorflow")),
    Finding("rojas", "Chainer has the highest cost, as one process writes while the others wait.", "in the same way; here all three write with one process while the others wait", "config/config.yaml", ("overhead", "checkpoint_cost", "sizes"), _highest("chainer")),
    Finding("rojas", "Scale hardly changes the cost of one checkpoint.", "stall with the most ranks against that with the fewest, on this machine alone", "config/config.yaml", ("overhead", "checkpoint_cost", "sizes"), _hardly_changed),
    Finding("rojas", "A restart does not harm training.", "runs are killed, restarted, and compared bit for bit with the run that was not killed", "config/studies/determinism.yaml", ("resume_proof",), _harmless),
    Finding("rojas", "Determinism has a cost.", "training time of the deterministic mode against the default mode", "config/studies/determinism.yaml", ("determinism_cost",), _determinism_costs),
    Finding("deepfreeze", "Serialization and I/O can be hidden behind training.", "stall of the strategy deepfreeze against that of native", "config/studies/deepfreeze.yaml", ("overhead", "checkpoint_cost", "sizes"), _hides),
    Finding("deepfreeze", "The ranks share the work.", "memory of each rank, with several ranks against one. On one machine they share the disk, so its speed tells nothing", "config/studies/deepfreeze.yaml", ("strategies",), _shares),
    Finding("ulfm", "Training recovers without a checkpoint, as the survivors hold the model.", "a rank is killed in runs without checkpoints: survivors go on, or all start again", "config/studies/ulfm.yaml", ("goodput",), _without_checkpoint),
)  # fmt: skip
TABLES = tuple(sorted({table for finding in FINDINGS for table in finding.needs} | {"provenance"}))
"""The tables that verdicts are made from."""
TITLE = "# Findings of the published studies"
INTRODUCTION = """\
Each finding of the three studies that ckptbench reproduces, how it is tested here, and what came out. The page is written from the tables of studies by a rule:

    python scripts/write_published.py --tables results/tables [more folders of tables] > docs/findings.md

*Found again* and *refuted* say what the intervals of these tables show, on the machine that is named; *not told* says that they cannot decide. In brackets are
95 % intervals. Another machine may give another verdict: that is what the program is for.
"""


def published(studies: Sequence[Tables]) -> str:
    """The page, from the tables of several studies: for each finding the first of them that decides it, or else has something on it."""
    lines = [TITLE, "", INTRODUCTION]
    for source, title in SOURCES.items():
        lines += [f"## {title}", ""]
        for finding in FINDINGS:
            if finding.source == source:
                lines += [_section(finding, studies), ""]
    return "\n".join(lines)


def _section(finding: Finding, studies: Sequence[Tables]) -> str:
    head = f"**{finding.claim}**\n\n- How it was tested: {finding.tested} (`{finding.study}`)."
    told = [
        (verdict, tables) for tables in studies if (verdict := finding.rule(tables)) is not None
    ]
    # Tables that decide come before those that cannot.
    for verdict, tables in sorted(told, key=lambda each: each[0].word == UNTOLD):
        where = caption_facts(tables["provenance"])
        return f"{head}\n- **{capitalized(verdict.word)}.** {verdict.evidence}.\n- {where}."
    return f"{head}\n- **{capitalized(UNTOLD)}.** No table at hand has anything on it: run `{finding.study}`."


def _native(tables: Tables) -> pd.DataFrame:
    rows = setups(tables)
    return rows[(rows["strategy"] == NATIVE.name) & (rows["recovery"] == RESTART.name)]


def _of(row: Row) -> str:
    return ", ".join([name(row["framework"]), name(row["model"]), describe("ranks", row["ranks"])])  # fmt: skip


def _together(words: Sequence[str]) -> str:
    """Of several comparisons: found where all that can tell find it, refuted where all that can tell refute it."""
    told = set(words) - {UNTOLD}
    return next(iter(told)) if len(told) == 1 else UNTOLD

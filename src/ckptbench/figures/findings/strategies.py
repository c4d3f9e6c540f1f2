"""Sentences on how long each strategy blocks training, compared with `native` in the same setup."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import pandas as pd

from ckptbench.analysis.tables.grouping import groups, records
from ckptbench.answer.setups import in_words, varying
from ckptbench.figures.findings.costs import COMPARED_IN, setups
from ckptbench.figures.findings.words import (
    Row,
    Study,
    Unit,
    amount,
    bounded,
    listed,
)
from ckptbench.matrix.catalogue import NATIVE

TIMES = Unit("")
SEPARATOR = "\n"


def sentences(tables: Mapping[str, pd.DataFrame], study: Study) -> list[str]:
    """One for each setup that ran with `native`, in its first format, and with another strategy."""
    rows = setups(tables)
    known = rows[rows["stall_s_lo"].notna()]
    if known["strategy"].nunique() < 2:
        return []
    where = study.names(known, *varying(known, ["interval"]))
    named = known.assign(where=where, who=_names(known))
    columns = ["framework", *(name for name in COMPARED_IN if name in named)]
    said = [text for _, group in groups(named, columns) for text in _of_setup(group)]
    return bounded(said, "strategies")


def _names(rows: pd.DataFrame) -> list[str]:
    """`native (torch.save)`: with the format where a strategy wrote several."""
    if (rows.groupby(["framework", "strategy"])["format"].nunique() == 1).all():
        return list(in_words(rows, ["strategy"], ""))
    return [
        names.replace(SEPARATOR, " (", 1) + ")" * (SEPARATOR in names)
        for names in in_words(rows, ["strategy", "format"], SEPARATOR)
    ]


def _of_setup(group: pd.DataFrame) -> Iterator[str]:
    is_native = group["strategy"] == str(NATIVE)
    if is_native.all() or not is_native.any():
        return
    native = records(group[is_native])[0]
    others = [{**row, **_ratio(row, native)} for row in records(group[~is_native])]
    apart = [row for row in others if not _contains_one(row)]
    alike = listed([str(row["who"]) for row in others if _contains_one(row)] or [""])
    if apart:
        ratios = [amount(row, "ratio", TIMES) for row in apart]
        more = [f"; {row['who']} {ratio}" for row, ratio in zip(apart[1:], ratios[1:], strict=True)]
        yield (
            f"{native['where']}: {apart[0]['who']} blocks training {ratios[0]} times as long as {native['who']}"
            f"{''.join(more)}.{f' No difference is shown for {alike}.' if alike else ''}"
        )
    else:
        yield f"{native['where']}: no difference from {native['who']} is shown for {alike}."


def _ratio(row: Row, native: Row) -> dict[str, float]:
    """The stall over that of `native`, with a 95 % interval from those of both, in logarithms.

    Zou and Donner 2008, "Construction of confidence limits about effect measures": the distance of each limit of a
    difference is the root of the squares of the distances of the two limits that push it there.
    """
    value, low, high = (math.log(row[name]) for name in ("stall_s", "stall_s_lo", "stall_s_hi"))
    base, base_low, base_high = (math.log(native[name]) for name in ("stall_s", "stall_s_lo", "stall_s_hi"))  # fmt: skip
    ratio = value - base
    return {
        "ratio": math.exp(ratio),
        "ratio_lo": math.exp(ratio - math.hypot(value - low, base_high - base)),
        "ratio_hi": math.exp(ratio + math.hypot(high - value, base - base_low)),
    }


def _contains_one(row: Row) -> bool:
    """Whether the interval does not tell the two stalls apart."""
    return bool(row["ratio_lo"] <= 1 <= row["ratio_hi"])

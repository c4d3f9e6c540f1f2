"""What checkpoints take beside time: peak of memory above the baseline's."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from ckptbench.analysis.cost.statistics import Floats

CLOSED, EPOCH = "closed", "epoch"
OF_RANK = ["run", "rank"]


def peaks_above(peaks: pd.DataFrame, pairs: Iterable[tuple[str, str]]) -> Floats:
    """By pair of a run and its baseline the peak of the one above that of the other, on the rank where that is the most.

    `peaks` is that of `peaks_of`. Shape (pairs,), without pairs of which either has no sample.
    """
    named = pd.DataFrame(pairs, columns=["run", "baseline"])
    both = named.merge(peaks, on="run").merge(
        peaks.rename(columns={"run": "baseline"}), on=["baseline", "rank"], suffixes=("", "_there")
    )
    above = (both["peak_bytes"] - both["peak_bytes_there"]).groupby(both["run"]).max()
    return above.to_numpy(float)


def peaks_of(memory: pd.DataFrame) -> pd.DataFrame:
    """One row a run and rank of the table `memory`: its peak up to the last end of an epoch.

    The last save may be written after it, while the rank already copies its final state, which is no memory of
    checkpoints: the baseline's rank does so as well, and has no sample then.
    """
    samples = memory[memory["when"] != CLOSED]
    ends = samples[samples["when"] == EPOCH].groupby(OF_RANK)["at_ns"].max().rename("end_ns")
    timed = samples.join(ends, on=OF_RANK)
    training = timed[timed["end_ns"].isna() | (timed["at_ns"] <= timed["end_ns"])]
    return training.groupby(OF_RANK)["peak_bytes"].max().reset_index()

"""Which parts of its state a restart did not give back, by what the run itself recorded: no reference is needed."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from ckptbench.analysis.tables.grouping import groups
from ckptbench.matrix.networks.tensor_groups import GROUPS

FIRST_UPDATE = "first_update"
PARTS = (*GROUPS, FIRST_UPDATE)


def missing_parts(digests: pd.DataFrame) -> str | None:
    """The names of the parts, joined by `, `, over all restarts and ranks; "" where everything came back.

    `digests` are the rows of one run. None where nothing was loaded, or it is not known what should have been.
    """
    found: set[str] = set()
    known = []
    for load, loaded in groups(digests[digests["when"] == "loaded"], ["rank", "attempt"]):
        of_rank = digests[digests["rank"] == load["rank"]]
        saved = _saved(of_rank, load["attempt"], loaded["step"].iloc[0])
        known.append(not saved.empty)
        found.update(_different(saved, loaded))
        stepped = of_rank[(of_rank["when"] == "stepped") & (of_rank["attempt"] == load["attempt"])]
        if _first_update_lost(of_rank, loaded, stepped):
            found.add(FIRST_UPDATE)
    if not found and not (known and all(known)):
        return None
    return ", ".join(part for part in PARTS if part in found)


def _saved(digests: pd.DataFrame, attempt: int, step: int) -> pd.DataFrame:
    """What the last attempt before `attempt` that saved a checkpoint of this step saved."""
    earlier = digests[
        (digests["when"] == "saved") & (digests["step"] == step) & (digests["attempt"] < attempt)
    ]
    last: pd.DataFrame = earlier[earlier["attempt"] == earlier["attempt"].max()]
    return last


def _different(saved: pd.DataFrame, loaded: pd.DataFrame) -> Iterator[str]:
    """Groups of the tensors that are not as they were saved; of none where it is not known how they were."""
    if not saved.empty:
        both = loaded.merge(saved, on=["tensor", "group"], how="outer", suffixes=("", "_saved"))
        yield from both.loc[both["digest"] != both["digest_saved"], "group"]


def _first_update_lost(of_rank: pd.DataFrame, loaded: pd.DataFrame, stepped: pd.DataFrame) -> bool:
    """Whether the first step after the load left every weight as it was, and training went on from there.

    Weights that no later step moves either stand still for another reason: all are NaN, say. Where nothing later is
    recorded, that cannot be told, and the update counts as lost.
    """
    if stepped.empty or not _same_weights(loaded, stepped):
        return False
    later = of_rank[
        (of_rank["attempt"] >= stepped["attempt"].iloc[0])
        & (of_rank["step"] > stepped["step"].iloc[0])
    ]
    moments = [moment for _, moment in groups(later, ["attempt", "step", "when"])]
    return not (moments and all(_same_weights(loaded, moment) for moment in moments))


def _same_weights(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    digests, others = (
        frame[frame["group"] == "weights"].set_index("tensor")["digest"] for frame in (one, other)
    )
    return digests.equals(others)

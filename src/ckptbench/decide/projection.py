"""What a checkpoint and a recovery cost with another number of GPUs: by what storage does, or by what was measured at several numbers.

The row of `decision_costs` says in `growth` how, as JSON: `{"storage": ...}` has the fields of `Storage`, and `{"fit": ...}` the three numbers of
`formulas.fitted_s` by cost. Where it is empty, a cost is taken to be the same at every number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ckptbench.decide import formulas
from ckptbench.decide.formulas import Floats
from ckptbench.decide.model import Saving
from ckptbench.decide.storage import Storage

Row = Mapping[str, Any]

CONSTANT, STORAGE, FIT = "constant", "storage", "fit"
GROWING = ("stall_s", "slowdown_s", "durable_s", "shared_durable_s", "down_s")
"""The costs that depend on the number of GPUs."""


def saving_of(storage: Storage, gpus: int, *, asynchronous: bool) -> Saving:
    """What a checkpoint costs. One that is written in the background is copied first."""
    return Saving(
        stall_s=float(formulas.stall_s(storage, gpus, asynchronous)),
        durable_s=float(formulas.durable_s(storage, gpus, asynchronous)),
    )


def growth(storage: Storage, *, asynchronous: bool) -> str:
    """The text for the column `growth`."""
    return json.dumps({STORAGE: storage.fields(), "asynchronous": asynchronous})


def projected(row: Row, gpus: int) -> dict[str, Any]:
    """The row of `decision_costs` with what it costs with so many GPUs: each cost, and the ends of its interval, in the same proportion."""
    if gpus == row["ranks"] or not row["growth"]:
        return dict(row)
    before, after = _costs(row, row["ranks"]), _costs(row, gpus)
    times = {name: float(formulas.times_as_much(before[name], after[name])) for name in before}
    return {
        **row,
        **{
            f"{name}{end}": row[f"{name}{end}"] * factor
            for name, factor in times.items()
            for end in ("", "_lo", "_hi")
        },
    }


def projection(row: Row) -> str:
    """How the costs of the row are projected: `constant`, `storage` or `fit`."""
    return next(iter(json.loads(row["growth"]))) if row["growth"] else CONSTANT


def _costs(row: Row, gpus: int) -> dict[str, Floats]:
    """What the costs are in proportion to. `growthOf` of the page's case.js has the same."""
    told = json.loads(row["growth"])
    if FIT in told:
        return {name: formulas.fitted_s(gpus, *numbers) for name, numbers in told[FIT].items()}
    storage, behind = Storage.of(**told[STORAGE]), told["asynchronous"]
    durable_s = formulas.durable_s(storage, gpus, behind)
    part = formulas.part_bytes(storage, gpus)
    return {
        "stall_s": formulas.stall_s(storage, gpus, behind),
        "slowdown_s": durable_s,
        "durable_s": durable_s if row["shared_every"] == 1 else part,
        "shared_durable_s": durable_s,
        "down_s": formulas.down_s(storage, gpus),
    }

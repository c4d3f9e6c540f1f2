"""What a checkpoint and a recovery cost with another number of GPUs: by what storage does, or by what was measured at several numbers.

The row of `decision_costs` says in `growth` how, as JSON: `{"storage": ...}` has the fields of `Storage`, and `{"fit": ...}` the three numbers of
`formulas.fitted_s` by cost. Where it is empty, a cost is taken to be the same at every number.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ckptbench.decide import formulas
from ckptbench.decide.choices import GPUS_PER_NODE
from ckptbench.decide.model import Saving

Row = Mapping[str, Any]

CONSTANT, STORAGE, FIT = "constant", "storage", "fit"
GROWING = ("stall_s", "slowdown_s", "durable_s", "shared_durable_s", "down_s")
"""The costs that depend on the number of GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Sizes are in bytes, bandwidths in bytes a second: None where one is no limit."""

    state_bytes: float
    """Of a version, with `gpus` GPUs."""
    gpus: int
    shared_by: int | None = None
    """So many GPUs hold one copy of the state in parts. None: all of them (FSDP); 1: each holds it all, and one writes it."""
    grows: bool = False
    """Whether a version is larger with more GPUs, in proportion."""
    reads_once: bool = False
    """Whether one GPU of all that hold the same part reads it from storage for the others."""
    gpus_per_node: int = GPUS_PER_NODE
    rank_bytes_per_s: float | None = None
    """To which one rank can write."""
    node_bytes_per_s: float | None = None
    """To which all ranks of one node can."""
    all_bytes_per_s: float | None = None
    """To which all nodes together can, and from which they can read."""
    copy_bytes_per_s: float | None = None
    """At which a rank copies its part aside, before that is written in the background."""
    read_bytes_per_s: float | None = None
    """At which one rank reads."""
    write_fixed_s: float = 0.0
    """Of a write, whatever its size."""
    copy_fixed_s: float = 0.0
    down_fixed_s: float = 0.0
    """Of a recovery, whatever the number of GPUs."""
    down_per_gpu_s: float = 0.0
    """What each GPU adds to a recovery."""

    def _state(self, gpus: int) -> tuple[float, float]:
        """The bytes of a version, and of the part of one rank."""
        whole = self.state_bytes * (gpus / self.gpus if self.grows else 1.0)
        return whole, whole / min(gpus if self.shared_by is None else self.shared_by, gpus)

    def write_s(self, gpus: int) -> float:
        whole, part = self._state(gpus)
        return float(
            formulas.write_s(
                gpus, self.gpus_per_node, whole, part, self.write_fixed_s, _limit(self.rank_bytes_per_s), _limit(self.node_bytes_per_s), _limit(self.all_bytes_per_s)
            )
        )  # fmt: skip

    def copy_s(self, gpus: int) -> float:
        """How long training is blocked where the write goes on in the background."""
        return self.copy_fixed_s + self._state(gpus)[1] / _limit(self.copy_bytes_per_s)

    def down_s(self, gpus: int) -> float:
        whole, part = self._state(gpus)
        read = whole if self.reads_once else gpus * part
        return float(
            formulas.down_s(
                gpus, read, part, self.down_fixed_s, self.down_per_gpu_s, _limit(self.read_bytes_per_s), _limit(self.all_bytes_per_s)
            )
        )  # fmt: skip

    def saving(self, gpus: int, *, asynchronous: bool) -> Saving:
        """What a checkpoint costs. One that is written in the background is copied first."""
        write_s = self.write_s(gpus)
        if not asynchronous:
            return Saving(stall_s=write_s, durable_s=write_s)
        copy_s = self.copy_s(gpus)
        return Saving(stall_s=copy_s, durable_s=copy_s + write_s)

    def growth(self, *, asynchronous: bool) -> str:
        """The text for the column `growth`."""
        return json.dumps({STORAGE: asdict(self), "asynchronous": asynchronous})

    @classmethod
    def factors(cls, told: Mapping[str, Any], row: Row, gpus: int) -> dict[str, float]:  # fmt: skip
        storage, measured = cls(**told[STORAGE]), int(row["ranks"])
        (before, after) = (
            storage.saving(number, asynchronous=told["asynchronous"]) for number in (measured, gpus)
        )
        durable = _ratio(after.durable_s, before.durable_s)
        part = _ratio(storage._state(gpus)[1], storage._state(measured)[1])
        return {
            "stall_s": _ratio(after.stall_s, before.stall_s),
            "slowdown_s": durable,
            "durable_s": durable if row["shared_every"] == 1 else part,
            "shared_durable_s": durable,
            "down_s": _ratio(storage.down_s(gpus), storage.down_s(measured)),
        }


def projected(row: Row, gpus: int) -> dict[str, Any]:
    """The row of `decision_costs` with what it costs with so many GPUs: each cost, and the ends of its interval, in the same proportion."""
    if gpus == row["ranks"] or not row["growth"]:
        return dict(row)
    told = json.loads(row["growth"])
    factors = Storage.factors(told, row, gpus) if STORAGE in told else _fitted_factors(told[FIT], row, gpus)  # fmt: skip
    return {
        **row,
        **{
            f"{name}{end}": row[f"{name}{end}"] * factor
            for name, factor in factors.items()
            for end in ("", "_lo", "_hi")
        },
    }


def _fitted_factors(fits: Mapping[str, Sequence[float]], row: Row, gpus: int) -> dict[str, float]:
    return {
        name: _ratio(*(formulas.fitted_s(number, *numbers) for number in (gpus, row["ranks"])))
        for name, numbers in fits.items()
    }


def projection(row: Row) -> str:
    """How the costs of the row are projected: `constant`, `storage` or `fit`."""
    return next(iter(json.loads(row["growth"]))) if row["growth"] else CONSTANT


def _ratio(after: Any, before: Any) -> float:
    """1 where there is nothing that could grow."""
    return float(after) / float(before) if before > 0 else 1.0


def _limit(bytes_per_s: float | None) -> float:
    return math.inf if bytes_per_s is None else bytes_per_s

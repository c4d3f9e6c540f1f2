"""The identity of a training, by which a run knows its own checkpoints."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ckptbench.common.shape import check
from ckptbench.matrix.training import CHOSEN_LATER

SHOWN_DIGITS = 12
"""Digits of a checksum or a run id that a message shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What makes a training itself. A run goes on only from a checkpoint with the same identity."""

    run_id: str
    """Drawn at random when a run begins. Attempts that continue the run keep it."""
    cell: dict[str, Any]
    """As `Cell.to_json` gives it."""
    training: dict[str, Any]
    """The fields of `Training`."""
    dataset_sha256: str
    """`dataset_sha256` of the prepared dataset."""
    lock_sha256: str
    """Of the lock file of the environment."""

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The identity whose fields are among those of `content`. Raises WrongShape if one is missing or of another type."""
        check(content, cls)
        return cls(**{field.name: content[field.name] for field in dataclasses.fields(cls)})

    def another_training(self, own: Self) -> str:
        """The fields in which this is another training than `own`, with both values. Empty: it is the same training."""
        theirs, ours = (
            training_fields(each.cell, each.training, each.dataset_sha256, each.lock_sha256)
            for each in (self, own)
        )
        return ", ".join(
            f"{name} is {_shown(theirs, name)} there and {_shown(ours, name)} here"
            for name in {**ours, **theirs}
            if name not in theirs or name not in ours or theirs[name] != ours[name]
        )

    def another_run(self, own: Self) -> str:
        """As `another_training`. Of two runs of the same training it is the `run_id` that differs."""
        if self.run_id == own.run_id:
            return self.another_training(own)
        return self.another_training(own) or (
            f"run_id is {self.run_id[:SHOWN_DIGITS]!r} there and {own.run_id[:SHOWN_DIGITS]!r} here"
        )


def training_fields(
    cell: Mapping[str, Any], training: Mapping[str, Any], dataset_sha256: str, lock_sha256: str
) -> dict[str, Any]:
    """What makes a training, by name, as JSON. Fields of cell and training are named alone.

    A setting that is as it was before there was a choice is left out: results of before stay valid.
    """
    chosen = training.items() - CHOSEN_LATER.items()
    return {
        **{f"cell.{name}": value for name, value in cell.items()},
        **{
            f"training.{name}": value for name, value in training.items() if (name, value) in chosen
        },
        "dataset_sha256": dataset_sha256,
        "lock_sha256": lock_sha256,
    }


def _shown(fields: Mapping[str, object], name: str) -> str:
    if name not in fields:
        return "missing"
    value = fields[name]
    return repr(str(value)[:SHOWN_DIGITS] if name.endswith("_sha256") else value)

"""What `probe_updates.py` does in each way, for tests that run without PyTorch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Quantity:
    steps: int
    skipped: int = 0
    backwards: float | None = 1.0
    """A step; None where it is not known beforehand."""


UPDATES = {
    **dict.fromkeys(
        ("sgd", "foreach", "fused", "deriving", "in_backward", "prepared", "two"), Quantity(steps=5)
    ),
    "raising": Quantity(steps=5, backwards=6 / 5),
    "closure": Quantity(steps=5, backwards=None),
    "accumulation": Quantity(steps=5, backwards=3.0),
    "scaled": Quantity(steps=6, skipped=2),
    "scaled_fused": Quantity(steps=6, skipped=2),
    "compiled_step": Quantity(steps=25),
    "compiled_whole": Quantity(steps=25),
}

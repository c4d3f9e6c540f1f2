"""How large a checkpoint is, from the number of parameters: what Rajbhandari et al. 2020 (ZeRO, arXiv:1910.02054, section 3.1) count, without gradients, which no
checkpoint needs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ckptbench.common.errors import ConfigError
from ckptbench.matrix.shown import show

OPTIMIZERS: Mapping[str, int] = {
    "adamw": 2,
    "adam": 2,
    "lion": 1,
    "momentum": 1,
    "sgd": 0,
    "adafactor": 0,
}
"""Numbers that each keeps of a parameter. `momentum` is SGD with momentum. Adafactor keeps a row and a column for a matrix, which is next to nothing, and no
momentum (Shazeer and Stern 2018, arXiv:1804.04235)."""
DTYPES: Mapping[str, tuple[int, int, int]] = {
    "bf16": (2, 4, 4), "fp16": (2, 4, 4), "fp32": (4, 0, 4), "pure-bf16": (2, 0, 2),
}  # fmt: skip
"""Bytes of a weight, of its copy in fp32 (the master), and of each number of the optimizer."""
SCALES: Mapping[str, float] = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12, "million": 1e6, "billion": 1e9}  # fmt: skip
PARAMS = re.compile(
    r"\s*((?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e\+?\d{1,2})?)\s*([a-z]*)\s*", re.IGNORECASE
)
MOST_PARAMS = 1e15


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Of a training."""

    params: float
    optimizer: str
    dtype: str

    @property
    def bytes_each(self) -> int:
        """For one parameter: 14 with AdamW in bf16."""
        weight, master, slot = DTYPES[self.dtype]
        return weight + master + slot * OPTIMIZERS[self.optimizer]

    @property
    def size(self) -> float:
        """Bytes."""
        return self.params * self.bytes_each

    def counted(self) -> str:
        """`2 weights + 4 master + 8 adamw`."""
        weight, master, slot = DTYPES[self.dtype]
        slots = slot * OPTIMIZERS[self.optimizer]
        parts = ((weight, "weights"), (master, "master copy"), (slots, self.optimizer))
        return " + ".join(f"{size} {name}" for size, name in parts if size)


def read_params(text: str) -> float:
    """A number of parameters: `7B`, `350M`, `1.3 billion`, `7e9`. Raises ConfigError."""
    match = PARAMS.fullmatch(text)
    number = float(match[1].replace(",", "")) * SCALES.get(match[2].lower(), 0.0) if match else 0.0
    if not 1 <= number <= MOST_PARAMS:
        raise ConfigError(
            f"{show(text)} is not a number of parameters: write it as 7B, 350M or 7e9"
        )
    return number

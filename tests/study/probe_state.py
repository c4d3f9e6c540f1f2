"""Prints what `ckptbench_probe.check.state` finds, as JSON: run with a Python that has PyTorch."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "probe" / "src"))
from ckptbench_probe.check.state import Optimizers, digest, random_states


def digests() -> dict[str, bool]:
    tensor = torch.randn(4, 6)
    short = tensor.bfloat16()
    last_bit = short.clone()
    last_bit.view(torch.int16)[3, 5] ^= 1
    return {
        "a copy": digest(tensor) == digest(tensor.clone()),
        "a view in another order": digest(tensor.t()) == digest(tensor.t().contiguous()),
        "another order": digest(tensor.t()) != digest(tensor),
        "bfloat16": digest(short) == digest(short.clone()),
        "one bit": digest(short) != digest(last_bit),
        "the sign of zero": digest(torch.tensor(0.0)) != digest(torch.tensor(-0.0)),
        "a scalar": digest(torch.tensor(3.0)) == digest(torch.tensor([3.0])),
        "not a number": digest(torch.tensor(torch.nan)) == digest(torch.tensor(torch.nan)),
        "empty": digest(torch.empty(0)) == digest(torch.empty(3, 0)),
        "needs a gradient": digest(nn.Parameter(tensor)) == digest(tensor),
        "conjugated": digest(torch.complex(tensor, tensor).conj()) == digest(torch.complex(tensor, -tensor)),
        "NumPy": digest(tensor.numpy()) == digest(tensor),
    }  # fmt: skip


def trained(model: nn.Module, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    model(torch.randn(8, 4)).pow(2).sum().backward()
    optimizer.step()
    return optimizer


def names() -> dict[str, list[str]]:
    first = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    compiled = torch.compile(first, backend="eager")
    second = nn.Sequential(nn.Linear(4, 4))
    loose = nn.Parameter(torch.ones(2))
    loose.sum().backward()
    alone = torch.optim.SGD([loose], lr=0.1)
    alone.step()
    adam = trained(compiled, torch.optim.AdamW(first.parameters()))
    other = trained(second, torch.optim.SGD(second.parameters(), lr=0.5))
    seen = Optimizers()
    for optimizer in (adam, other, alone, adam):
        seen.add(optimizer)
    found = {
        "all": list(seen.tensors()),
        "of the second": list(seen.tensors(other)),
        "rates": [str(rate) for rate in seen.rates()],
        "step": [str(seen.step())],
    }
    assert all(isinstance(value, Tensor) for value in seen.tensors().values())
    return found


class Named(nn.Module):
    """Its names look alike: a slash, a wrapper's prefix, and a buffer that another model has, too."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleDict({"w/exp_avg": nn.Linear(4, 1), "w": nn.Linear(4, 1)})
        self.module = nn.Linear(4, 4)
        self.weight = nn.Parameter(torch.ones(4, 4))
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, value: Tensor) -> Tensor:
        return sum((part(value) for part in self.parts.values()), self.module(value @ self.weight))


def colliding() -> dict[str, int]:
    """Tensors that there are, and names that they have."""
    models = [Named(), Named()]
    seen = Optimizers()
    optimizers = [trained(model, torch.optim.AdamW(model.parameters())) for model in models]
    for optimizer in optimizers:
        seen.add(optimizer)
    every = sum(4 * len(list(model.parameters())) + 1 for model in models)
    return {"tensors": every, "names": len(seen.tensors())}


def changed(draw: object) -> list[str]:
    """Random states that a draw has changed."""
    before = random_states()
    assert callable(draw)
    draw()
    return [name for name, state in random_states().items() if before[name] != state]


def main() -> None:
    import numpy

    draws = {
        "python": changed(random.random),
        "numpy": changed(numpy.random.random),
        "torch": changed(lambda: torch.rand(1)),
        "none": changed(lambda: None),
    }
    print(
        json.dumps(
            {"digests": digests(), "names": names(), "draws": draws, "colliding": colliding()}
        )
    )


if __name__ == "__main__":
    main()

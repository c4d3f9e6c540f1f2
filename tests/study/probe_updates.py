"""Trains a few steps in each of the ways that are named, and prints what came out: run with and without the probe, it must be the same.

python probe_updates.py WAY...
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict

Train = Callable[[nn.Module], None]
STEPS = 5
ACCUMULATED = 3


class Deriving(torch.optim.AdamW):
    """Its step calls the one that it derives from: hooks are called twice."""

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        return super().step(closure)


class Raising(torch.optim.SGD):
    """Its second step raises, before the one that it derives from is called."""

    called = 0

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        self.called += 1
        if self.called == 2:
            raise ValueError("of the test")
        return super().step(closure)


def batch() -> Tensor:
    return torch.randn(8, 32)


def loss(model: nn.Module) -> Tensor:
    return model(batch()).sum()


def by(optimizer: Callable[..., torch.optim.Optimizer], **options: object) -> Train:
    def train(model: nn.Module) -> None:
        own = optimizer(model.parameters(), **options)
        for _ in range(STEPS):
            own.zero_grad()
            loss(model).backward()
            own.step()

    return train


def raising(model: nn.Module) -> None:
    own = Raising(model.parameters(), lr=0.01)
    for _ in range(STEPS + 1):
        own.zero_grad()
        loss(model).backward()
        try:
            own.step()
        except ValueError:
            continue


def closure(model: nn.Module) -> None:
    own = torch.optim.LBFGS(model.parameters())
    for _ in range(STEPS):
        fixed = batch()

        def again(fixed: Tensor = fixed) -> Tensor:
            own.zero_grad()
            found = model(fixed).pow(2).sum()
            found.backward()
            return found

        own.step(again)


def accumulation(model: nn.Module) -> None:
    own = torch.optim.AdamW(model.parameters())
    for _ in range(STEPS):
        for _ in range(ACCUMULATED):
            loss(model).backward()
        own.step()
        own.zero_grad()


def in_backward(model: nn.Module) -> None:
    each = {parameter: torch.optim.SGD([parameter], lr=0.01) for parameter in model.parameters()}

    def step(parameter: Tensor) -> None:
        each[parameter].step()
        each[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    for _ in range(STEPS):
        loss(model).backward()


def prepared(model: nn.Module) -> None:
    """As a resume does it: the slots are made before they are loaded."""
    own = torch.optim.AdamW(model.parameters())
    get_state_dict(model, own)
    for _ in range(STEPS):
        own.zero_grad()
        loss(model).backward()
        own.step()


def two(model: nn.Module) -> None:
    first, *rest = model.parameters()
    both = [torch.optim.SGD([first], lr=0.01), torch.optim.AdamW(rest)]
    for _ in range(STEPS):
        loss(model).backward()
        for own in both:
            own.step()
            own.zero_grad()


def scaled(*, fused: bool) -> Train:
    """Of its updates, the second and the fifth are left out."""

    def train(model: nn.Module) -> None:
        own = torch.optim.AdamW(model.parameters(), fused=fused)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        for step in range(STEPS + 1):
            own.zero_grad()
            factor = float("inf") if step in (1, 4) else 1.0
            scaler.scale(loss(model) * factor).backward()
            scaler.step(own)
            scaler.update()

    return train


def compiled_step(model: nn.Module) -> None:
    own = torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.001))
    step = torch.compile(own.step, backend="aot_eager")
    for _ in range(25):  # more than Dynamo compiles again
        own.zero_grad()
        loss(model).backward()
        step()


def compiled_whole(model: nn.Module) -> None:
    own = torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.001))

    @torch.compile(backend="aot_eager")
    def train(inputs: Tensor) -> None:
        own.zero_grad()
        model(inputs).sum().backward()
        own.step()

    for number in range(25):
        if number == 12:
            time.sleep(1.1)  # the probe counts no backward pass any more
        train(batch())


WAYS: dict[str, Train] = {
    "sgd": by(torch.optim.SGD, lr=0.01),
    "foreach": by(torch.optim.AdamW, foreach=True),
    "fused": by(torch.optim.AdamW, fused=True),
    "deriving": by(Deriving),
    "raising": raising,
    "closure": closure,
    "accumulation": accumulation,
    "in_backward": in_backward,
    "prepared": prepared,
    "two": two,
    "scaled": scaled(fused=False),
    "scaled_fused": scaled(fused=True),
    "compiled_step": compiled_step,
    "compiled_whole": compiled_whole,
}


def main() -> None:
    torch.set_num_threads(1)
    for way in sys.argv[1:]:
        torch.manual_seed(0)
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        model = nn.Linear(32, 32)
        WAYS[way](model)
        graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        total = sum(float(p.detach().double().sum()) for p in model.parameters())
        print(way, total.hex(), graphs)


if __name__ == "__main__":
    main()

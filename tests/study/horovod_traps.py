"""Restarts of a program that uses Horovod as its manual does, beside ours; run by `ranks.run_scenario` in every rank.

A restart is played in one process: a network and an optimizer are made anew, which is all that a new process would have
of them. Every scenario returns what each rank holds after such a restart.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scenario import Scenario, varied_weights
from scenarios import main

from ckptbench.frameworks.contract import Arrays, Sgd, TrainSpec
from ckptbench.run.control.ranks import RankContext

if TYPE_CHECKING:
    import torch

SETTINGS = {"learning_rate": 0.05, "momentum": 0.9, "weight_decay": 0.1}


class Program:
    """Network and optimizer of a plain Horovod program, before Horovod wraps the optimizer."""

    def __init__(self, scenario: Scenario) -> None:
        import torch

        rebuild(scenario)
        self.network = copy.deepcopy(scenario.framework.module)  # type: ignore[attr-defined]
        self.optimizer = torch.optim.SGD(
            self.network.parameters(),
            lr=SETTINGS["learning_rate"],
            momentum=SETTINGS["momentum"],
            weight_decay=SETTINGS["weight_decay"],
        )

    def wrapped(self) -> torch.optim.Optimizer:
        import horovod.torch as hvd

        return hvd.DistributedOptimizer(
            self.optimizer, named_parameters=self.network.named_parameters()
        )

    def state(self, wrapped: torch.optim.Optimizer) -> Arrays:
        """By the names that PyTorch gives: weights, statistics, and momenta, zero where there is none."""
        arrays = {name: tensor.numpy().copy() for name, tensor in self.network.state_dict().items()}
        for name, parameter in self.network.named_parameters():
            slot = wrapped.state.get(parameter, {}).get("momentum_buffer")
            arrays[f"momentum/{name}"] = (
                np.zeros(parameter.shape, np.float32) if slot is None else slot.numpy().copy()
            )
        return arrays


def rebuild(scenario: Scenario) -> None:
    scenario.framework.build(
        TrainSpec(scenario.network, varied_weights(scenario.network), Sgd(**SETTINGS))
    )


def begun(framework: str, world: RankContext, folder: Path) -> tuple[Scenario, Path]:
    """Three steps, and the checkpoint after them, which rank 0 writes, and each rank's own state."""
    scenario = Scenario(framework, world, "small_cnn", **SETTINGS)
    scenario.train(0, 3, 8 * world.world_size)
    chosen = scenario.framework.formats["torch_save"]
    if world.rank == 0:
        chosen.save(scenario.framework, folder / chosen.filename)
    scenario.framework.barrier()
    return scenario, folder / chosen.filename


def restart_ours(scenario: Scenario, path: Path, local_state: Arrays) -> Arrays:
    rebuild(scenario)
    scenario.framework.formats["torch_save"].load(scenario.framework, path)
    scenario.framework.load_local_state(local_state)
    return everything(scenario)


def everything(scenario: Scenario) -> Arrays:
    """Without the random states, which no program of ours and no plain one shares."""
    state = scenario.framework.local_state()
    buffers = {name: array for name, array in state.items() if name.startswith("buffer/")}
    return {**scenario.framework.normalized_state(), **buffers}


def saved_and_restarted(framework: str, world: RankContext, folder: Path) -> Arrays:
    """Ours: what every rank held at the checkpoint, and what it holds after the restart."""
    scenario, path = begun(framework, world, folder)
    saved, local_state = everything(scenario), scenario.framework.local_state()
    return labelled(saved=saved, restarted=restart_ours(scenario, path, local_state))


def load_before_wrapping(framework: str, world: RankContext, folder: Path) -> Arrays:
    """Plain: the optimizer's state is loaded, then Horovod wraps the optimizer."""
    scenario, path = begun(framework, world, folder)
    program, state = Program(scenario), read(path)
    program.network.load_state_dict(state["model"])
    program.optimizer.load_state_dict(state["optimizer"])
    loaded = program.state(program.optimizer)
    return labelled(saved=loaded, restarted=program.state(program.wrapped()))


def broadcast(
    framework: str, world: RankContext, folder: Path, *, parameters_first: bool
) -> Arrays:
    """Plain: rank 0 loads into the wrapped optimizer and sends its state to the others, in one order or the other."""
    import horovod.torch as hvd

    scenario, path = begun(framework, world, folder)
    program, state = Program(scenario), read(path)
    optimizer = program.wrapped()
    if world.rank == 0:
        program.network.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    if parameters_first:
        hvd.broadcast_parameters(program.network.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    if not parameters_first:
        hvd.broadcast_parameters(program.network.state_dict(), root_rank=0)
    return labelled(restarted=program.state(optimizer))


def load_one_file(framework: str, world: RankContext, folder: Path) -> Arrays:
    """Plain: every rank loads what rank 0 wrote, into the wrapped optimizer."""
    scenario, path = begun(framework, world, folder)
    module: Any = scenario.framework.module  # type: ignore[attr-defined]
    saved = {name: tensor.numpy().copy() for name, tensor in module.state_dict().items()}
    program, state = Program(scenario), read(path)
    optimizer = program.wrapped()
    program.network.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return labelled(saved=saved, restarted=program.state(optimizer))


def read(path: Path) -> dict[str, Any]:
    import torch

    state: dict[str, Any] = torch.load(path, weights_only=True)
    return state


def labelled(**moments: Arrays) -> Arrays:
    return {f"{moment}/{name}": a for moment, found in moments.items() for name, a in found.items()}


def sums(framework: str, world: RankContext, folder: Path) -> Arrays:
    """Two tensors summed over the ranks, each in a buffer of its own and both in one."""
    import horovod.torch as hvd
    import torch

    Scenario(framework, world, "plain_cnn")
    torch.manual_seed(world.rank)
    tensors = [torch.randn(1000), torch.randn(1500)]
    alone = [
        hvd.allreduce(tensor, op=hvd.Sum, name=f"alone.{n}") for n, tensor in enumerate(tensors)
    ]
    fused = hvd.grouped_allreduce(tensors, op=hvd.Sum, name="fused")
    return labelled(
        alone={str(n): tensor.numpy() for n, tensor in enumerate(alone)},
        fused={str(n): tensor.numpy() for n, tensor in enumerate(fused)},
    )


def fail(framework: str, world: RankContext, folder: Path, *, how: str) -> Arrays:
    """The last rank ends in the middle of training while the others go on to their next step."""
    import os
    import signal

    scenario = Scenario(framework, world, "plain_cnn")
    scenario.train(0, 2, 8 * world.world_size)
    if world.rank == world.world_size - 1:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        scenario.framework.abort()
        os._exit(1)
    try:
        scenario.train(2, 100, 8 * world.world_size)
    except Exception as error:
        (folder / f"error-{world.rank}.txt").write_text(f"{type(error).__name__}: {error}")
        scenario.framework.abort()
        raise
    raise AssertionError("98 steps without the last rank")


SCENARIOS = {
    "saved_and_restarted": saved_and_restarted,
    "load_before_wrapping": load_before_wrapping,
    "broadcast": broadcast,
    "load_one_file": load_one_file,
    "sums": sums,
    "fail": fail,
}

if __name__ == "__main__":
    main(SCENARIOS)

"""What `test_pytorch_state.py` asks of the own strategies over PyTorch; run by `ranks.run_scenario` as one process a rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from scenario import Scenario, open_strategy
from scenarios import main

from ckptbench.checkpointing import staging_buffer
from ckptbench.checkpointing.copying import has_c_copy
from ckptbench.checkpointing.pieces import pieces_in
from ckptbench.checkpointing.store import CheckpointStore
from ckptbench.checkpointing.version import Version
from ckptbench.frameworks.contract import Arrays
from ckptbench.frameworks.pytorch import PyTorch
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.run.control.ranks import RankContext
from ckptbench.run.position import Position

BY_NUMPY = " by NumPy"
OWN = ("sharded", "async", "deepfreeze", f"async{BY_NUMPY}", f"deepfreeze{BY_NUMPY}")
"""The strategies whose files `safetensors` reads, and ways to copy."""
TIED = "tied"
SAVED = Position(step=1, epoch=0, step_in_epoch=1)


KINDS: dict[str, dict[str, Any]] = {
    "bfloat16": {"dtype": torch.bfloat16},
    "float8_e4m3fn": {"dtype": torch.float8_e4m3fn},
    "float8_e5m2": {"dtype": torch.float8_e5m2},
    "channels_last": {"memory_format": torch.channels_last},
    "channels_last bfloat16": {"memory_format": torch.channels_last, "dtype": torch.bfloat16},
    TIED: {},
}
"""Arguments of `module.to` after it was built. TIED: scale and shift of each batch norm are one parameter, too."""


def states(framework: str, world: RankContext, folder: Path) -> Arrays:
    """By kind of state and way to save, the names of the tensors that are not `loaded` as they were `saved`, bit for bit.

    Ways are OWN, and the formats of `native`. `read`: what `safetensors` does not find in the files of OWN as it was saved.
    """
    scenario = Scenario(framework, world, "small_cnn")
    found: Arrays = {}
    for kind, how in KINDS.items():
        for way in (*OWN, *scenario.framework.formats):
            scenario.build()
            _change(scenario.framework, how)
            told = _saved_and_loaded(scenario, way, folder / f"{kind}-{way}")
            found |= {f"{kind}/{way}/{what}": value for what, value in told.items()}
    return found


def _change(framework: Any, how: dict[str, Any]) -> None:
    framework.module.to(**how)
    if how is KINDS[TIED]:
        for module in framework.module.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.bias = module.weight
        optimizer = framework.optimizer
        framework.optimizer = type(optimizer)(framework.module.parameters(), **optimizer.defaults)
    for parameter in framework.module.parameters():
        framework.optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    strided = [tensor for _, tensor in framework._parameters() if not tensor.is_contiguous()]
    assert bool(strided) == ("memory_format" in how)


def _saved_and_loaded(scenario: Scenario, way: str, folder: Path) -> Arrays:
    framework: Any = scenario.framework
    saving = open_strategy(
        PluginSpec(way.removesuffix(BY_NUMPY) if way in OWN else "native"),
        framework,
        scenario.world,
        format="safetensors" if way in OWN else way,
        store=CheckpointStore(folder, keep=1),
    )
    staging_buffer.has_c_copy = (lambda: False) if way.endswith(BY_NUMPY) else has_c_copy
    saving.ready()
    _overwrite(framework, seed=1)
    then, own = _tensors(framework), framework.local_state()
    saving.save(SAVED)
    if saving.hook is not None:
        saving.hook()
    _overwrite(framework, seed=2)
    saving.settle()
    framework.barrier()
    ((_, version),) = saving.versions()
    saving.load(version)
    now, own_now = _tensors(framework), framework.local_state()
    saving.close()
    assert all(own[name].tobytes() == own_now[name].tobytes() for name in own)
    read = _read(version) if way in OWN else then
    return {
        "once": np.asarray(_written(version) if way in OWN else [], str),
        "tied": np.asarray(_tied(framework), str),
        "saved": np.asarray(list(then)),
        "loaded": np.asarray([n for n in then if not _same(then[n], now[n])], str),
        "read": np.asarray([n for n in then if not _same(then[n], read.get(n))], str),
    }


def _tensors(framework: PyTorch) -> dict[str, torch.Tensor]:
    """Copies of parameters and momenta, by their names in the state."""
    parameters = {f"model/{name}": each for name, each in framework._parameters()}
    named = {**parameters, **_momenta(framework)}
    return {name: each.detach().clone() for name, each in named.items()}


def _momenta(framework: PyTorch) -> dict[str, torch.Tensor]:
    return framework.slots_of(dict(framework._parameters()))


@torch.no_grad()
def _overwrite(framework: PyTorch, seed: int) -> None:
    """Give all parameters, momenta and buffers other values, as a step does."""
    draw = torch.Generator().manual_seed(seed)
    own = [*framework._buffers(), *framework.module.named_buffers()]
    for _, tensor in (*framework._parameters(), *_momenta(framework).items(), *own):
        values = torch.randn(tensor.shape, generator=draw)
        tensor.copy_(values if tensor.dtype.is_floating_point else torch.tensor(seed))


def _read(version: Version) -> dict[str, torch.Tensor]:
    """The tensors of the shards as `safetensors` opens them, those that are cut put together, and tied ones by both names."""
    parts: dict[str, torch.Tensor] = {}
    metadata: dict[str, str] = {}
    for file in version.files.values():
        if file.kind == "state":
            parts |= load_file(version.folder / file.name)
            with safe_open(version.folder / file.name, framework="pt") as opened:
                metadata |= opened.metadata() or {}
    whole = {name: tensor for name, tensor in parts.items() if "[" not in name}
    cut = {name.partition("[")[0] for name in parts.keys() - whole.keys()}
    for name in cut:
        own = [part for part in parts if part.startswith(f"{name}[")]
        whole[name] = torch.cat([parts[part] for part in sorted(own, key=_start)])
    return whole | {also: whole[name] for also, name in metadata.items() if also not in cut}


def _written(version: Version) -> list[str]:
    """The names of the tensors in the files, of each file's parts too."""
    names: list[str] = []
    for file in version.files.values():
        if file.kind == "state":
            names += [piece.tensor.name for piece in pieces_in(version.folder / file.name)]
    return names


def _tied(framework: PyTorch) -> list[str]:
    """The names of those tensors that lie where one before them does."""
    known: dict[int, str] = {}
    named = [(f"model/{name}", each) for name, each in framework._parameters()]
    named += _momenta(framework).items()
    return [name for name, each in named if known.setdefault(each.data_ptr(), name) != name]


def _start(part: str) -> int:
    return int(part.partition("[")[2].partition(":")[0])


def _same(first: torch.Tensor, second: torch.Tensor | None) -> bool:
    if second is None or first.dtype != second.dtype:
        return False
    return torch.equal(*(each.contiguous().view(-1).view(torch.uint8) for each in (first, second)))


if __name__ == "__main__":
    main({"states": states})

"""What a framework is asked to do in its own environment; run by `ranks.run_scenario` as one process a rank."""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import malice
import numpy as np
from scenario import BY, Scenario, open_strategy, strategies_of

from ckptbench.checkpointing.manager import CheckpointManager
from ckptbench.checkpointing.store import CheckpointStore
from ckptbench.checkpointing.version import open_version, read_version, version_name
from ckptbench.common.errors import CheckpointError
from ckptbench.frameworks.contract import Arrays, Framework
from ckptbench.frameworks.determinism import LIBRARIES
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.registry import STRATEGIES
from ckptbench.run.control.joining import join_ranks
from ckptbench.run.control.ranks import RankContext
from ckptbench.run.control.variables import LOGS, read_assignment
from ckptbench.run.position import Position
from ckptbench.training.rank import log_to

EARLIER = Position(step=2, epoch=0, step_in_epoch=2)
SAVED = Position(step=3, epoch=0, step_in_epoch=3)
"""Where the scenario `save` writes its checkpoints, strategies after one at EARLIER: often other code does a second save."""


def forward(
    framework: str,
    world: RankContext,
    folder: Path,
    *,
    named: str,
    others: list[str],
    **options: Any,
) -> Arrays:
    """By model: logits and parameter counts of a freshly built network; and names of what `named` consists of."""
    scenario = Scenario(framework, world, named, **options)
    found = _in(named, {**_predicted(scenario), **_names(scenario.framework)})
    for model in others:
        scenario.build(model)
        found |= _in(model, _predicted(scenario))
    return found


def _in(group: str, found: Arrays) -> Arrays:
    return {f"{group}/{name}": array for name, array in found.items()}


def _predicted(scenario: Scenario) -> Arrays:
    state = scenario.framework.state_dict()
    count = sum(state[f"model/{name}"].size for name in scenario.network.parameters())
    return {
        "logits": scenario.predict(8),
        "one": scenario.predict(1),
        "parameters": np.asarray(count),
    }


def _names(framework: Framework) -> Arrays:
    parts = {
        "normalized_state": framework.normalized_state(),
        "state_dict": framework.state_dict(),
        "local_state": framework.local_state(),
    }
    return {name: np.asarray(sorted(arrays)) for name, arrays in parts.items()}


def train(
    framework: str,
    world: RankContext,
    folder: Path,
    *,
    model: str,
    size: int,
    steps: int,
    **options: Any,
) -> Arrays:
    """All tensors after some steps on global batches of `size` samples, and this rank's losses."""
    scenario = Scenario(framework, world, model, **options)
    losses = scenario.train(0, steps, size)
    biased = np.asarray(scenario.framework.biased_variance)
    tensors = scenario.framework.normalized_state()
    return {**tensors, "losses": np.asarray(losses), "biased_variance": biased}


def averaged(framework: str, world: RankContext, folder: Path, **options: Any) -> Arrays:
    """As `train` with half the learning rate, where the hook `average` doubles every gradient; and what it was given."""
    given: list[tuple[int, int]] = []

    def double(gradients: Sequence[np.ndarray]) -> None:
        given.append((len(gradients), sum(each.size for each in gradients)))
        for gradient in gradients:
            np.multiply(gradient, 2, out=gradient)

    def joined(framework: Framework) -> None:
        framework.average = double

    scenario = Scenario(framework, world, options["model"], joined=joined, learning_rate=0.025)
    try:
        losses = scenario.train(0, options["steps"], options["size"])
    finally:
        scenario.framework.average = None
    tensors = {
        f"model/{name}": scenario.framework.normalized_state()[f"model/{name}"]
        for name in scenario.network.parameters()
    }
    return {**tensors, "losses": np.asarray(losses), "given": np.asarray(given)}


def step(framework: str, world: RankContext, folder: Path, *, model: str, size: int) -> Arrays:
    """Losses of two steps, and the logits after them; of networks whose tensors are too large to hand over."""
    scenario = Scenario(framework, world, model, learning_rate=0.001)
    losses = scenario.train(0, 2, size)
    return {"losses": np.asarray(losses), "logits": scenario.predict(8)}


def save(
    framework: str, world: RankContext, folder: Path, *, last: int = 6, **options: Any
) -> Arrays:
    """Train three steps, write a checkpoint in every format and by every strategy, train to the end of step `last`.

    Under `saved/`: model and optimizer as they were then. `left`: threads and processes that the strategies have left.
    """
    strategies: dict[str, CheckpointManager] = {}
    before: set[str] = set()

    def open_all(joined: Framework) -> None:
        (folder / BY).mkdir(exist_ok=True)
        before.update(_living())
        for name in strategies_of(framework):
            strategies[name] = _open(name, joined, world, folder / BY)
        hooks = [strategy.hook for strategy in strategies.values() if strategy.hook is not None]
        joined.before_update = lambda: [hook() for hook in hooks]

    scenario = Scenario(framework, world, "small_cnn", joined=open_all, **options)
    for strategy in strategies.values():
        strategy.ready()
    scenario.train(0, EARLIER.step, 8 * world.world_size)
    for strategy in strategies.values():
        strategy.save(EARLIER)
    scenario.train(EARLIER.step, SAVED.step, 8 * world.world_size)
    np.savez(folder / f"state-{world.rank}.npz", **scenario.framework.local_state())
    for name, chosen in scenario.framework.formats.items():
        if world.rank == 0:
            (folder / name).mkdir()
        if world.rank == 0 or scenario.framework.is_sharded:
            chosen.save(scenario.framework, folder / name / chosen.filename)
    for strategy in strategies.values():
        strategy.save(SAVED)
    then = _in("saved", scenario.framework.state_dict())
    scenario.framework.barrier()
    scenario.train(3, last, 8 * world.world_size)
    for strategy in strategies.values():
        strategy.close()
    left = np.asarray(_still_living(before), str)
    scenario.framework.barrier()
    return {**_everything(scenario), **then, "left": left}


def _still_living(before: set[str]) -> list[str]:
    """What lives and did not live `before`, after it had a minute to end."""
    deadline = time.monotonic() + 60
    while (left := _living() - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    return sorted(left)


def _living() -> set[str]:
    """The threads of Python in this process, and the processes that it has started."""
    children = {f"process {pid}" for pid in _children()}
    return children | {f"thread {thread.name}" for thread in threading.enumerate()}


def moments(framework: str, world: RankContext, folder: Path, **options: Any) -> Arrays:
    """`saved`: what the framework holds after three steps.

    By format, and strategy behind BY, `read/<name>`: what a network that is built anew holds after it has read its
    checkpoint; and of formats, `bytes/<name>`: the size of its files.
    """
    own = folder / "moments"
    (own / BY).mkdir(parents=True)
    scenario = Scenario(framework, world, **options)
    scenario.train(0, SAVED.step, 4)
    found = _in("saved", scenario.framework.state_dict())
    formats, strategies = scenario.framework.formats, strategies_of(framework)
    for name, chosen in formats.items():
        (own / name).mkdir()
        chosen.save(scenario.framework, own / name / chosen.filename)
        files = [path for path in (own / name).rglob("*") if path.is_file()]
        found[f"bytes/{name}"] = np.asarray(sum(path.stat().st_size for path in files))
    for name in strategies:
        strategy = _open(name, scenario.framework, world, own / BY)
        strategy.ready()
        strategy.save(SAVED)
        strategy.close()
    for name in formats:
        scenario.build()
        formats[name].load(scenario.framework, own / name / formats[name].filename)
        found |= _in(f"read/{name}", scenario.framework.state_dict())
    for name in strategies:
        scenario.build()
        _load(name, scenario, own)
        found |= _in(f"read/{BY}{name}", scenario.framework.state_dict())
    return found


def _hook(joined: Framework) -> None:
    joined.before_update = lambda: None


def _open(
    strategy: str, framework: Framework, world: RankContext, folder: Path
) -> CheckpointManager:
    return open_strategy(
        PluginSpec(strategy),
        framework,
        world,
        format=STRATEGIES[strategy].formats[0],
        store=CheckpointStore(folder / strategy, keep=1),
    )


def _load(strategy: str, scenario: Scenario, saved: Path) -> None:
    version = read_version(saved / BY / strategy / version_name(SAVED.step))
    _open(strategy, scenario.framework, scenario.world, saved / BY).load(version)


def resume(
    framework: str,
    world: RankContext,
    folder: Path,
    *,
    formats: list[str],
    saved: str,
    others: str | None = None,
    last: int = 6,
    **options: Any,
) -> Arrays:
    """By format, or strategy behind BY: read its checkpoint, in a process that did not write it, and train the steps that follow.

    Under `of_others/<strategy>/`: model and optimizer of the checkpoint in the folder `others`, which another number of
    ranks has written; or, as `refused`, why it cannot be loaded.
    """
    # `save` trains with a hook, and TensorFlow compiles a step without one into operations that round otherwise.
    scenario = Scenario(framework, world, "small_cnn", joined=_hook, **options)
    found: Arrays = {}
    for format in formats:
        if found:
            scenario.build()
        if format.startswith(BY):
            _load(format.removeprefix(BY), scenario, Path(saved))
        else:
            chosen = scenario.framework.formats[format]
            chosen.load(scenario.framework, Path(saved) / format / chosen.filename)
            with np.load(Path(saved) / f"state-{world.rank}.npz", allow_pickle=False) as state:
                scenario.framework.load_local_state({name: state[name] for name in state.files})
        scenario.train(3, last, 8 * world.world_size)
        found |= _in(format, _everything(scenario))
    for strategy in strategies_of(framework) if others is not None else []:
        scenario.build()
        try:
            _load(strategy, scenario, Path(str(others)))
            loaded = scenario.framework.state_dict()
        except CheckpointError as error:
            loaded = {"refused": np.asarray(str(error))}
        found |= _in(f"of_others/{strategy}", loaded)
    return found


def full(framework: str, world: RankContext, folder: Path) -> Arrays:
    """By strategy: the error of a save, or of the next one, where no file can grow beyond LARGEST_FILE."""
    scenario = Scenario(framework, world, "plain_cnn")
    assert sum(handle.nbytes for handle in scenario.framework.handles()) > 2 * LARGEST_FILE
    found = {}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for name in strategies_of(framework):
        strategy = _open(name, scenario.framework, world, folder)
        strategy.ready()
        _limit_files((LARGEST_FILE, limits[1]))
        try:
            strategy.save(EARLIER)
            strategy.save(SAVED)
            found[name] = np.asarray("nothing was said")
        except CheckpointError as error:
            found[name] = np.asarray(str(error))
        finally:
            _limit_files(limits)
    return found


def _limit_files(limits: tuple[int, int]) -> None:
    """Of this process and of those that strategies have started already."""
    for pid in (os.getpid(), *_children()):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)


def _children() -> list[int]:
    found: list[int] = []
    for task in Path("/proc/self/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # of a thread that has ended
            found += map(int, task.read_text().split())
    return found


LARGEST_FILE = 1 << 14
"""Bytes. More than the state that only one rank has."""


def many(framework: str, world: RankContext, folder: Path, *, strategy: str, saves: int) -> Arrays:
    """The steps of the sound versions after so many saves, all of which the store keeps; and what the engine has `listed`."""
    scenario = Scenario(framework, world, "plain_cnn")
    store = CheckpointStore(folder / f"many-{strategy}", keep=saves)
    format = STRATEGIES[strategy].formats[0]
    saving = open_strategy(
        PluginSpec(strategy), scenario.framework, world, format=format, store=store
    )
    for step in range(1, saves + 1):
        saving.save(Position(step=step, epoch=0, step_in_epoch=step))
    saving.close()
    scenario.framework.barrier()
    sound = [open_version(path).position.step for path in store.folder.glob("version-*")]
    listed = saving._strategy._checkpointer.files  # type: ignore[attr-defined]
    return {"sound": np.asarray(sorted(sound)), "listed": np.asarray(listed, str)}


def hook(framework: str, world: RankContext, folder: Path) -> Arrays:
    """The state that `before_update` sees in each of three steps, `before` the step and in it.

    And the tensors at the end of a training `with` the hook, and of the same training `without`.
    """
    scenario = Scenario(framework, world, "plain_cnn")
    scenario.train(0, 3, 8 * world.world_size)
    found = _in("without", scenario.framework.normalized_state())
    seen: list[Arrays] = []
    scenario.framework.before_update = lambda: seen.append(_state(scenario.framework))
    scenario.build()
    for step in range(3):
        found |= _in(f"before/{step}", _state(scenario.framework))
        scenario.train(step, step + 1, 8 * world.world_size)
    scenario.framework.before_update = None
    for step, state in enumerate(seen):
        found |= _in(f"seen/{step}", state)
    found |= _in("with", scenario.framework.normalized_state())
    return {**found, "segments": np.asarray(_named_segments())}


def _state(framework: Framework) -> Arrays:
    return {handle.name: np.array(handle.read()) for handle in framework.handles()}


def _named_segments() -> list[str]:
    """The shared memory of this process that a SIGKILL would leave behind: what has a name."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in lines if "/dev/shm/" in line and not line.endswith("(deleted)")]


def forget(
    framework: str, world: RankContext, folder: Path, *, part: str, others: list[str] | None = None
) -> Arrays:
    """The tensors `before` a part of the state is forgotten, and after each of two steps that follow.

    `begun`: after the first of these steps, with the weights of `before` and slots that have never been updated. The
    framework must have none of the parts `others` to forget.
    """
    scenario = Scenario(framework, world, "plain_cnn")
    size = 8 * world.world_size
    scenario.train(0, 3, size)
    moments = {"before": scenario.framework.normalized_state()}
    for other in others or []:
        _refuse(scenario.framework, other)
    scenario.framework.forget(part)
    for step, moment in ((3, "first"), (4, "second")):
        scenario.train(step, step + 1, size)
        moments[moment] = scenario.framework.normalized_state()
    weights = {name: moments["before"][f"model/{name}"] for name in scenario.network.parameters()}
    anew = Scenario(framework, world, "plain_cnn", weights=weights)
    anew.train(3, 4, size)
    moments["begun"] = anew.framework.normalized_state()
    return {f"{moment}/{name}": a for moment, found in moments.items() for name, a in found.items()}


def _refuse(framework: Framework, part: str) -> None:
    words = "nothing was refused"
    try:
        framework.forget(part)
    except ValueError as error:
        words = str(error)
    assert part in words, words


def settings(framework: str, world: RankContext, folder: Path, *, deterministic: bool) -> Arrays:
    """Which settings of deterministic mode are on in this rank, after a step."""
    scenario = Scenario(framework, world, "small_cnn", deterministic=deterministic)
    scenario.train(0, 1, 8)
    on = {name: os.environ.get(name) == value for name, value in LIBRARIES.items()}
    for module, flags in (
        ("torch", _torch_flags),
        ("tensorflow", _tensorflow_flags),
        ("chainer", _chainer_flags),
    ):
        if module in sys.modules:
            on |= flags(sys.modules[module])
    return {name: np.asarray(flag) for name, flag in on.items()}


def _torch_flags(torch: Any) -> dict[str, bool]:
    return {
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "cudnn.deterministic": torch.backends.cudnn.deterministic,
    }


def _tensorflow_flags(tensorflow: Any) -> dict[str, bool]:
    from tensorflow.python.framework import config  # what enables it is public, what tells is not

    return {"op_determinism": config.is_op_determinism_enabled()}


def _chainer_flags(chainer: Any) -> dict[str, bool]:
    names = ("cudnn_deterministic", "warn_nondeterministic")
    return {name: getattr(chainer.config, name) for name in names}


def load_malicious(framework: str, world: RankContext, folder: Path) -> Arrays:
    """By format or strategy: what became of loading each malicious version of a checkpoint; see `malice.py`."""
    scenario = Scenario(framework, world, "small_cnn")
    found = {}
    for format in (
        *scenario.framework.formats,
        *(f"{BY}{name}" for name in strategies_of(framework)),
    ):
        scenario.build()
        outcomes = malice.outcomes(scenario.framework, world, format, folder / format)
        found |= {f"{format}/{name}": outcome for name, outcome in outcomes.items()}
    return found


def load_half(framework: str, world: RankContext, folder: Path) -> Arrays:
    """What became of loading what is not whole.

    By format: a checkpoint that lacks the optimizer's state. By strategy: one whose index has half of a tensor alone.
    """
    scenario = Scenario(framework, world, "small_cnn")
    found = {}
    for format in set(scenario.framework.formats) & set(malice.HALVED):
        scenario.build()
        (folder / format).mkdir(parents=True)
        found[format] = np.asarray(malice.load_half(scenario.framework, format, folder / format))
    for strategy in set(strategies_of(framework)) & set(malice.GAPS):
        scenario.build()
        error = malice.load_gap(scenario.framework, world, strategy, folder / strategy)
        found[strategy] = np.asarray(error)
    return found


def several(
    framework: str, world: RankContext, folder: Path, *, parts: dict[str, list[Any]]
) -> Arrays:
    """What several scenarios find one after another in one process; by part: a scenario and its options."""
    found: Arrays = {}
    for part, (name, options) in parts.items():
        found |= _in(part, SCENARIOS[name](framework, world, folder, **options))
    return found


def _everything(scenario: Scenario) -> Arrays:
    state = {f"local_state/{name}": a for name, a in scenario.framework.local_state().items()}
    return {**scenario.framework.normalized_state(), **state, "logits": scenario.predict(8)}


SCENARIOS: dict[str, Callable[..., Arrays]] = {
    "forward": forward,
    "train": train,
    "averaged": averaged,
    "step": step,
    "save": save,
    "moments": moments,
    "resume": resume,
    "hook": hook,
    "forget": forget,
    "full": full,
    "many": many,
    "settings": settings,
    "load_malicious": load_malicious,
    "load_half": load_half,
    "several": several,
}


def main(scenarios: dict[str, Callable[..., Arrays]]) -> None:
    framework, scenario, folder, options = sys.argv[1:]
    log_to(Path(os.environ[LOGS]) / f"rank-{read_assignment()[0].rank}.log")
    world, link = join_ranks(accelerator="cpu")
    found = scenarios[scenario](framework, world, Path(folder), **json.loads(options))
    np.savez(Path(folder) / f"found-{world.rank}.npz", **found)
    link.close()


if __name__ == "__main__":
    main(SCENARIOS)

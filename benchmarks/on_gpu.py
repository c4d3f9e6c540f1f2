"""Everything that this repository must know of a GPU, measured on a bare machine that has one and can fetch nothing.

It needs Python 3.11 or newer, PyTorch, NumPy, h5py and xxhash. Without safetensors it makes a stand-in, and the result says so.

    python benchmarks/on_gpu.py                        # about 40 minutes; writes results/on_gpu.json
    python benchmarks/strategies.py --from results/on_gpu.json

First the contract of PyTorch on the GPU, without and with FSDP2: the same logits as on the CPU; a restart bit for bit, by every
strategy; in deterministic mode the same bits twice. Then what each strategy costs (`strategies.py`), in the trainings of
`TRAININGS`. `--device cpu` tries all of it without a GPU.
"""

from __future__ import annotations

import argparse
import atexit
import importlib.util
import json
import math
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "src"
STOOD_IN = "CKPTBENCH_STAND_INS"
"""Variable with the folder of the stand-ins, for the processes that this one starts."""


STAND_INS = ("safetensors",)
"""PyTorch's file imports it for a format that is not measured here."""


def _find_libraries() -> list[str]:
    """Put ckptbench and this folder on the path, also of the processes that are started, and stand-ins for what is missing.

    Returns the libraries that stand-ins replace.
    """
    missing = [name for name in STAND_INS if importlib.util.find_spec(name) is None]
    folder = Path(os.environ.get(STOOD_IN) or tempfile.mkdtemp(prefix="ckptbench-stand-ins-"))
    if STOOD_IN not in os.environ:
        for name in missing:
            (folder / name).mkdir()
            (folder / name / "__init__.py").touch()
            (folder / name / "torch.py").touch()
        atexit.register(shutil.rmtree, folder)
        os.environ[STOOD_IN] = str(folder)
    paths = [str(SOURCE), str(HERE), str(folder)]
    os.environ["PYTHONPATH"] = os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])
    sys.path[:0] = paths
    return missing


MISSING = _find_libraries()

import numpy as np  # noqa: E402
import torch  # noqa: E402
from strategies import chosen, measure, show  # noqa: E402
from training import OVER_PYTORCH, RESULTS, Saver, batch_of, build, one_rank  # noqa: E402

from ckptbench.frameworks.contract import Arrays  # noqa: E402
from ckptbench.frameworks.pytorch import PyTorch  # noqa: E402
from ckptbench.matrix.registry import FRAMEWORKS, load  # noqa: E402
from ckptbench.training.digest import digests  # noqa: E402

TRAININGS: dict[str, dict[str, Any]] = {
    "resnet50": {"batches": (32, 64), "frameworks": OVER_PYTORCH[:1]},
    "vgg16": {"batches": (32, 64), "frameworks": OVER_PYTORCH[:1]},
    "gpt2": {
        "batches": (8,), "frameworks": OVER_PYTORCH, "optimizer": "adamw", "precision": "bf16", "length": 1024,
    },
}  # fmt: skip
"""By model: its batch sizes and frameworks, and the options of `build` that are not its defaults."""
PROVEN: dict[str, dict[str, Any]] = {
    "resnet50": {},
    "gpt_baby": {"optimizer": "adamw", "precision": "bf16"},
}
"""The models of the contract with the options of their training."""
BATCH = 8
CLOSE = 1e-3
"""Largest difference of a logit between two devices, relative to the largest logit."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument(
        "--models", default=",".join(TRAININGS), help="to measure; empty: the contract alone"
    )
    parser.add_argument("--proven", default=",".join(PROVEN), help="models of the contract")
    parser.add_argument("--frameworks", default=",".join(OVER_PYTORCH))
    parser.add_argument("--intervals", default="10,1", help="steps after every checkpoint")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument(
        "--at-most-s", type=float, default=math.inf, help="no second round begins later"
    )
    parser.add_argument("--strategies", help="separated by commas; default: all that can be used")
    parser.add_argument(
        "--folder", type=Path, default=RESULTS, help="on the file system to measure"
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "on_gpu.json")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("PyTorch sees no GPU here: use --device cpu to try this without one")
    found: dict[str, Any] = {
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "stand_ins": MISSING,
        "contract": {
            f"{framework}, {model}: {what}": good
            for framework in _named(options.frameworks)
            for model in _named(options.proven)
            for what, good in _contract(
                options.device, framework, model, _strategies(options, framework)
            ).items()
        },
        "measured": [],
    }
    print(json.dumps(found["contract"], indent=2), flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    _write(found, options.out)
    for one in _measurements(options):
        figures = measure(one)
        show(figures)
        found["measured"].append(figures)
        _write(found, options.out)
    print(f"written to {options.out}")
    if failed := [name for name, good in found["contract"].items() if not good]:
        raise SystemExit(f"the contract does not hold on {options.device}: {'; '.join(failed)}")


def _write(found: Mapping[str, Any], path: Path) -> None:
    """After each measurement, so that whatever ends this program costs at most one of them."""
    path.write_text(json.dumps(found, indent=1), encoding="utf-8")


def _named(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _strategies(options: argparse.Namespace, framework: str) -> list[str]:
    return chosen(argparse.Namespace(framework=framework, strategies=options.strategies))


def _measurements(options: argparse.Namespace) -> Iterator[argparse.Namespace]:
    """The options of `measure`, for one measurement after the other."""
    for model in _named(options.models):
        training = dict(TRAININGS[model])
        batches, frameworks = training.pop("batches"), training.pop("frameworks")
        for framework in [each for each in frameworks if each in _named(options.frameworks)]:
            for batch in batches:
                for interval in map(int, _named(options.intervals)):
                    yield argparse.Namespace(
                        model=model, framework=framework, **training, ranks=1, batch=batch, interval=interval,
                        rounds=options.rounds, checkpoints=max(2, 20 // interval),
                        strategies=",".join(_strategies(options, framework)), folder=options.folder,
                        device=options.device, at_most_s=options.at_most_s, cores=None,
                    )  # fmt: skip


def _contract(device: str, framework: str, model: str, strategies: list[str]) -> dict[str, bool]:
    """What must be true of the framework on this device, and whether it is."""
    logits = [_alone(_logits, framework, model, each) for each in ("cpu", device)]
    difference = np.abs(logits[0] - logits[1]).max() / np.abs(logits[0]).max()
    repeated = [_alone(_trained, framework, model, device) for _ in range(2)]
    return {
        "the same logits as on the CPU": bool(difference < CLOSE),
        "the same bits twice in deterministic mode": repeated[0] == repeated[1],
        **{
            f"bit for bit after a restart by {name}": bool(
                _alone(_restarted, framework, model, device, name)
            )
            for name in strategies
        },
    }


def _alone(work: Callable[..., Any], *arguments: Any) -> Any:
    """The result of the work in a process of its own: a process chooses device and mode once, and may start others."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
        return alone.submit(work, *arguments).result()


def _join(framework: str, device: str, *, deterministic: bool = False) -> PyTorch:
    kind: type[PyTorch] = load(FRAMEWORKS[framework].location)
    return kind.join(one_rank(device), seed=1, deterministic=deterministic)


def _state(framework: PyTorch) -> dict[str, str]:
    return digests({**framework.state_dict(), **framework.local_state()})


def _train(framework: PyTorch, model: str, first: int, last: int) -> None:
    for step in range(first, last):
        framework.step(*batch_of(model, BATCH, seed=step))


def _logits(name: str, model: str, device: str) -> Arrays:
    """In fp32: in bf16 a processor and a GPU round differently."""
    framework = _join(name, device)
    build(framework, model)
    return framework.predict(batch_of(model, BATCH, seed=0)[0])


def _trained(name: str, model: str, device: str) -> dict[str, str]:
    framework = _join(name, device, deterministic=True)
    build(framework, model, **PROVEN[model])
    _train(framework, model, 0, 5)
    return _state(framework)


def _restarted(name: str, model: str, device: str, strategy: str) -> bool:
    """Whether five steps with a restart after the third are five steps without one, and the version that of its step."""
    framework = _join(name, device, deterministic=True)
    with tempfile.TemporaryDirectory() as folder:
        saver = Saver(strategy, framework, one_rank(device), Path(folder, "versions"), keep=2)
        framework.before_update = saver.hook
        build(framework, model, **PROVEN[model])
        saver.ready()
        _train(framework, model, 0, 3)
        then = _state(framework)
        saver.save_next()
        _train(framework, model, 3, 5)
        ended = _state(framework)
        saver.settle()
        version = saver.store.newest()
        assert version is not None
        _train(framework, model, 5, 7)
        saver.load(version)
        loaded = _state(framework)
        _train(framework, model, 3, 5)
        again = _state(framework)
        saver.close()
    return loaded == then and again == ended


if __name__ == "__main__":
    main()

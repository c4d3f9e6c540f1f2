"""A study of many failures, drawn from a seed: does every recovery go on, or end with one clear error?

    python benchmarks/many_failures.py ulfm chainer --runs 20 --seed 3 > many.yaml
    python benchmarks/many_failures.py "{ulfm: {replace: true}}" chainer > others.yaml
    snakemake --profile local --configfile many.yaml
    python benchmarks/many_failures.py --summary results

Each run meets two failures, and often a third while it recovers: of any kind, in a step, in a collective, in a save. It is
sealed only if every failure struck as planned and its ranks ended alike. Runs whose faults are `f...` train a larger network: only
its checkpoints notice a full disk, and a broken one is struck there too.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from ckptbench.matrix.catalogue import UNWRITABLE

EPOCHS, STEPS = 3, 20
BETWEEN = 5
"""Steps between checkpoints."""
KINDS = ("kill", "kill", "node", "hang", "slow", "damage")
ENDING = ("kill", "node", "damage")
"""Kinds after which ranks recover at once."""
STARTING = {"restart", "torchrun"}
"""Recoveries in which all ranks start again, so that what fails next fails them all while they start."""


def starts_processes(recovery: Any) -> bool:
    """Whether others wait while processes start, which takes seconds."""
    replaces = isinstance(recovery, dict) and (next(iter(recovery.values())) or {}).get("replace")
    return name_of(recovery) in STARTING or bool(replaces)


def name_of(recovery: Any) -> str:
    """Without its options."""
    return next(iter(recovery)) if isinstance(recovery, dict) else recovery


def drawn(rng: random.Random, ranks: int, recovery: Any) -> list[dict[str, Any]]:
    """The failures of one run."""
    end = EPOCHS * STEPS - 12
    first_step = rng.randrange(3, end - 2 * BETWEEN)
    # Not in the same save: the first one might end the victim of the second one before that strikes.
    steps = first_step, rng.randrange(first_step + 2 * BETWEEN, end)
    failures = [_failure(rng, ranks, step) for step in steps]
    first = failures[0]
    if first["kind"] in ("kill", "damage") and rng.random() < 0.6:
        longest = 2.0 if starts_processes(recovery) else 0.01
        delay = round(rng.uniform(0, longest), 4)
        failures.insert(1, {"moment": "recovery", "rank": rng.randrange(ranks), "delay_s": delay})
    return failures


def _failure(rng: random.Random, ranks: int, step: int) -> dict[str, Any]:
    kind = rng.choice(KINDS)
    failure: dict[str, Any] = {"step": step, "delay_s": round(rng.uniform(0, 0.03), 4)}
    failure["kind"] = "kill" if kind == "node" else kind
    failure |= {"node": 0} if kind == "node" else {"rank": rng.randrange(ranks)}
    if kind == "hang":
        failure["lasts_s"] = rng.choice([0.5, 600.0])
    elif kind == "slow":
        failure["lasts_s"] = 1.0
    if rng.random() < 0.35:
        failure |= {"step": max(BETWEEN, step // BETWEEN * BETWEEN), "moment": "save"}
    return failure


def config(options: argparse.Namespace) -> dict[str, Any]:
    rng = random.Random(options.seed)
    lists = {f"m{n}": drawn(rng, options.ranks, options.recovery) for n in range(options.runs)}
    for n in range(options.full_disks):
        step = rng.randrange(3, 20)
        kind = rng.choice(UNWRITABLE)
        lists[f"f{n}"] = [{"step": step, "rank": 0, "kind": kind, "lasts_s": 600.0}]
    matrix = {
        "framework": options.framework,
        "model": "small_cnn",
        "dataset": "digits",
        "ranks": options.ranks,
        "batch_size": 8,
        "epochs": EPOCHS,
        "strategy": options.strategy,
        "format": "default",
        "interval": f"{BETWEEN} steps",
        "deterministic": True,
        "history": "whole",
        "faults": [{"listed": {"name": name}} for name in lists if name.startswith("m")],
        "recovery": options.recovery,
        "omit": "nothing",
        "cache": "warm",
    }
    full = [
        {"model": "googlenet", "epochs": 1, "faults": {"listed": {"name": name}}}
        for name in lists
        if name.startswith("f")
    ]
    return {
        "accelerator": "cpu",
        "matrix": matrix,
        "exclude": [],
        "include": full,
        "failures": lists,
        "repeats": 1,
        "training": {
            "seed": options.seed,
            "learning_rate": 0.005,
            "momentum": 0.9,
            "weight_decay": 0.0,
            "warmup_steps": 2,
            "steps_per_epoch": STEPS,
            "test_samples": 32,
            "proof": False,
        },
    }


def summary(results: Path) -> None:
    """How many failures of each kind and moment struck under each recovery, and how the runs ended."""
    struck: Counter[tuple[str, str, str]] = Counter()
    ended: Counter[tuple[str, str]] = Counter()
    for path in sorted((results / "runs").glob("*/manifest.json")):
        manifest = json.loads(path.read_text())
        cell = manifest["cell"]
        recovery = name_of(cell["recovery"])
        if cell["faults"] == "none":
            continue
        sealed = path.with_name("seal.json").exists()
        ended[recovery, "sealed" if sealed else manifest["error"] or manifest["status"]] += 1
        for strike in manifest.get("strikes", ()):
            failure = manifest["failures"][strike["failure"]]
            kind = "node" if "node" in failure else failure.get("kind", "kill")
            struck[recovery, kind, failure.get("moment", "step")] += 1
    for (recovery, kind, moment), number in sorted(struck.items()):
        print(f"{recovery:16} {kind:10} {moment:9} {number:4}")
    print(f"{sum(struck.values())} failures in {sum(ended.values())} runs")
    for (recovery, how), number in sorted(ended.items()):
        print(f"{recovery:16} {number:4} {how.splitlines()[0]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recovery", nargs="?", default="restart", type=yaml.safe_load)
    parser.add_argument("framework", nargs="?", default="chainer")
    parser.add_argument("--runs", type=int, default=20, help="with a small network")
    parser.add_argument(
        "--full-disks", type=int, default=0, help="runs whose disk is full or broken"
    )
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--strategy", default="native")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--summary", type=Path, help="a folder of results to sum up instead")
    options = parser.parse_args()
    if options.summary:
        summary(options.summary)
    else:
        yaml.safe_dump(config(options), sys.stdout, sort_keys=False)


if __name__ == "__main__":
    main()

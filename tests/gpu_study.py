"""`config/studies/gpu.yaml` as it ships, and on a CPU with models and data that take seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

PATH = Path(__file__).resolve().parents[1] / "config" / "studies" / "gpu.yaml"
FEWER = ("deepfreeze", "dcp_async")
"""Strategies that are tried on a CPU where not every one is."""


def gpu_study() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(PATH.read_text(encoding="utf-8"))
    return content


def on_cpu(*, whole: bool) -> dict[str, Any]:
    """Every entry of the study once, with its frameworks, optimizers, intervals and proofs, and the smallest network and batches.

    Without `whole` with one strategy each.
    """
    content = gpu_study() | {"accelerator": "cpu", "repeats": 1}
    for batch, entry in enumerate((content["matrix"], *content["include"]), start=1):
        if isinstance(entry["strategy"], list) and not whole:
            entry["strategy"] = [each for each in entry["strategy"] if each in FEWER][-1:]
        if entry.get("model", "small_cnn") != "small_cnn":
            entry.update(model="small_cnn", dataset="synthetic", batch_size=batch)
    content["exclude"] = content["exclude"] if whole else []
    content["datasets"]["synthetic"] |= {"height": 16, "width": 16, "classes": 10}
    return content

"""The manifest of a run folder, read and checked: every field that tables are made from is there and has its type."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ckptbench.common.files import read_json
from ckptbench.runs.layout import SCHEMA_VERSION
from ckptbench.runs.seal import refused
from ckptbench.runs.typed import check_fields

FIELDS: dict[str, Any] = {
    "schema_version": int, "cell_id": str, "cell": dict[str, Any], "training": dict[str, Any], "seed": int, "status": str,
    "attempts": int, "requeues": int, "started": str, "ended": str, "duration_s": float | None, "measured_on": str, "device": str,
    "host": dict[str, Any], "hosts": list[str], "versions": dict[str, str], "lock_sha256": str, "source": dict[str, Any],
    "state_bytes": dict[str, int], "failures": list[dict[str, Any]],
    "strikes": list[dict[str, Any]], "run_id": str, "dataset_sha256": str,
}  # fmt: skip
SECTIONS: dict[str, dict[str, Any]] = {
    "training": {"seed": int, "warmup_steps": int, "keep_during_run": int, "proof": bool},
    "host": {
        "host": str, "kernel": str, "cpu": str, "cores": int, "memory_bytes": int, "gpus": list[str],
        "checkpoint_file_system": str, "scheduler_job": str | None,
    },
    "source": {"revision": str | None, "dirty": bool | None},
    "state_bytes": {"model": int, "optimizer": int, "rest": int},
}  # fmt: skip


def read_manifest(path: Path) -> dict[str, Any]:
    """Raises RunFolderError, with the field, where the manifest is not that of a complete run of this version."""
    manifest = read_json(path)
    if missing := sorted(FIELDS.keys() - manifest.keys()):
        raise refused(path, f"lacks {', '.join(missing)}")
    _check(path, manifest, FIELDS)
    for section, fields in SECTIONS.items():
        if missing := [f"{section}.{name}" for name in sorted(fields.keys() - manifest[section].keys())]:  # fmt: skip
            raise refused(path, f"lacks {', '.join(missing)}")
        _check(path, manifest[section], fields, f"{section}.")
    if manifest["schema_version"] != SCHEMA_VERSION:
        raise refused(path, f"schema_version is {manifest['schema_version']}, not {SCHEMA_VERSION}")
    if manifest["status"] != "complete":
        raise refused(path, f'status is "{manifest["status"]}", not "complete"')
    duration_s = manifest["duration_s"]
    if duration_s is not None and not math.isfinite(duration_s):
        raise refused(path, f"duration_s is {duration_s}, which is no time")
    for name in ("started", "ended"):
        _check_time(path, name, manifest[name])
    return manifest


def _check(
    path: Path, content: Mapping[str, Any], kinds: Mapping[str, Any], within: str = ""
) -> None:
    try:
        check_fields(content, kinds, within)
    except TypeError as error:
        raise refused(path, str(error)) from None


def _check_time(path: Path, name: str, text: str) -> None:
    try:
        zoned = datetime.datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        zoned = False
    if not zoned:
        raise refused(path, f"{name} is {text!r:.80}, not a time with its zone in ISO 8601")

"""What was submitted, on disk, so that a restarted workflow takes its jobs back.

A file of JSON lines beside the run folders: a line when a job was submitted, another when
Snakemake has seen its end. What has no second line is a job that may still run.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from snakemake_interface_executor_plugins.jobs import JobExecutorInterface

from .resources import Allocation

FILE_NAME = "submitted.jsonl"


@dataclass(frozen=True)
class Identity:
    """Which job this is: `outputs` says what it makes, `whole` also how and from what."""

    outputs: str
    whole: str

    @classmethod
    def of(cls, job: JobExecutorInterface, allocation: Allocation) -> "Identity":
        outputs = sorted(map(str, job.output))
        properties: dict[str, Any] = json.loads(job.properties())
        for varying in ("jobid", "groupid"):
            properties.pop(varying, None)
        members = job.jobs if job.is_group() else (job,)
        whole = {
            "properties": properties,
            "input": sorted(map(str, job.input)),
            "code": sorted(_code(member.rule) for member in members),
            "allocation": asdict(allocation),
        }
        return cls(_digest(outputs), _digest([outputs, whole]))


@dataclass(frozen=True)
class Entry:
    """A submitted job."""

    cluster: str
    job_id: str
    folder: str
    identity: Identity
    submitted_at: float = field(default_factory=time.time)
    """Seconds since the epoch."""


class Registry:
    """Open entries of earlier workflows, and the record of this one."""

    def __init__(self, folder: Path, cluster: str) -> None:
        self._path = folder / FILE_NAME
        self._left = {
            entry.identity.outputs: entry
            for entry in self._read().values()
            if entry.cluster == cluster
        }

    def take(self, identity: Identity) -> Entry | None:
        """The job that an earlier workflow left behind for the same outputs, once."""
        return self._left.pop(identity.outputs, None)

    def add(self, entries: Iterable[Entry]) -> None:
        self._append(asdict(entry) for entry in entries)

    def settle(self, job_ids: Iterable[str]) -> None:
        """These jobs have ended, and Snakemake knows how."""
        self._append({"settled": job_id} for job_id in job_ids)

    def compact(self) -> None:
        """Leaves only open entries in the file; for the one workflow that holds the lock."""
        if not self._path.exists():
            return
        entries = self._read().values()
        draft = self._path.with_suffix(".draft")
        draft.write_text("".join(json.dumps(asdict(entry)) + "\n" for entry in entries))
        os.replace(draft, self._path)

    def _append(self, records: Iterable[dict[str, Any]]) -> None:
        text = "".join(json.dumps(record) + "\n" for record in records)
        if text:
            with self._path.open("a") as file:
                file.write(text)

    def _read(self) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        for record in filter(None, map(_parse, lines)):
            if "settled" in record:
                entries.pop(record["settled"], None)
            else:
                identity = Identity(**record.pop("identity"))
                entries[record["job_id"]] = Entry(**record, identity=identity)
        return entries


def _parse(line: str) -> dict[str, Any] | None:
    """None for a line that was cut short when its writer was killed."""
    try:
        record = json.loads(line)
    except json.JSONDecodeError:
        return None
    return record if isinstance(record, dict) else None


def _code(rule: Any) -> str:
    """What the rule runs, as far as the rule itself says."""
    parts = (getattr(rule, name, None) for name in ("shellcmd", "run_func_src", "script"))
    return f"{rule.name}:{[str(part) for part in parts if part is not None]}"


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()

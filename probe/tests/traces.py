"""Traces that tests write themselves, in seconds of an invented clock."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

START_NS = 5_000_000_000_000


def at(seconds: float) -> int:
    return START_NS + round(seconds * 1e9)


@dataclass
class Written:
    """The trace of one rank."""

    rank: int | None = 0
    ranks: int = 1
    host: str = "node0"
    boot: str = "boot0"
    run: str = "run"
    pid: int = 100
    unix_ns: int = 1_700_000_000_000_000_000
    born: float = -5.0
    opened: float = 0.0
    restarts: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)

    def updates(self, *seconds: float, backwards: int | None = None) -> Written:
        done = sum(1 + len(one["then_us"]) for one in self.events if one["event"] == "updates")
        total = done + len(seconds) if backwards is None else backwards
        then = [round(1e6 * (one - seconds[0])) for one in seconds[1:]]
        return self.add(
            "updates",
            first=done,
            at_ns=at(seconds[0]),
            then_us=then,
            backwards=total,
            counted=done + len(seconds),
        )

    def save(
        self, start: float, end: float | None, *, finished: float | None = None, after: int = 0, path: str = "/c/one.pt", kind: str = "torch.save",
        stepping: bool = True, clean: float | None = None, sizes: dict[str, int] | None = None, size: int = 0,
    ) -> Written:  # fmt: skip
        """`finished`: where it is left out, the end."""
        id = f"{self.pid}.{len(self.events)}"
        self.add(
            "save",
            save=id,
            kind=kind,
            path=path,
            start_ns=at(start),
            thread="MainThread",
            stepping=stepping,
            updates=after,
        )
        if end is None:
            return self
        self.add("end", save=id, end_ns=at(end), bytes=sizes or {}, failed=False)
        self.add(
            "finished",
            save=id,
            at_ns=at(end if finished is None else finished),
            thread="MainThread",
        )
        if clean is not None:
            self.add(
                "clean",
                save=id,
                at_ns=at(clean),
                state="written back",
                files=1,
                size=size,
                file_system="ext4",
                memory_bytes=0,
            )
        return self

    def ended(self, seconds: float) -> Written:
        return self.add("exit", at_ns=at(seconds))

    def add(self, event: str, **fields: Any) -> Written:
        self.events.append({"event": event, **fields})
        return self

    def into(self, folder: Path, *, torn: str = "") -> Path:
        folder.mkdir(exist_ok=True)
        opening = {
            "event": "process", "format": 1, "run": self.run, "host": self.host, "pid": self.pid, "boot": self.boot, "at_ns": at(self.opened),
            "unix_ns": self.unix_ns + at(self.opened) - START_NS, "born_ns": at(self.born), "rank": self.rank, "ranks": self.ranks, "restarts": self.restarts, "python": "3.11.7",
            "command": ["train.py"],
        }  # fmt: skip
        lines = [json.dumps(one) for one in [opening, *self.events]]
        path = folder / f"trace-{self.host}-{self.pid}-{self.boot}.jsonl"
        path.write_text("\n".join(lines) + "\n" + torn)
        return folder

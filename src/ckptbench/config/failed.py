"""What to do after a workflow that ended with failed jobs: which they are, why, and how to go on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ckptbench.common.files import read_regular
from ckptbench.common.remedies import free, is_full

MOST_SHOWN = 10
"""Failed jobs that are written out."""
CAUSE = re.compile(r"(?:\[[\w-]+\] .*)?\b[A-Z]\w*(?:Error|Stopped|Exception|Exit)\b.*: .")
RANK_ERROR = re.compile(r"\b[A-Z]\w*(?:Error|Exception)\b: .")
CAUSE_CHARACTERS = 400
CLOCKS_DIFFER_S = 10.0
"""The clock of a file server may be behind that of the workflow by so much."""


@dataclass(frozen=True, slots=True)
class FailedJob:
    """A job that Snakemake has given up."""

    rule: str
    wildcards: Mapping[str, str] = field(default_factory=dict)
    logs: tuple[Path, ...] = ()
    since: float = 0.0
    """When the workflow began, in s since 1970. A log that is older is that of an earlier job: this one was never started."""

    @property
    def name(self) -> str:
        """The run, or the rule with what it was to make."""
        made = " ".join(self.wildcards.values())
        return made if "cell" in self.wildcards else f"{self.rule} {made}".strip()

    def written(self) -> list[Path]:
        """The logs that this job has written."""
        found = []
        for path in self.logs:
            with suppress(OSError):  # there is none, as on a full disk
                if path.stat().st_mtime > self.since - CLOCKS_DIFFER_S:
                    found.append(path)
        return found

    def cause(self) -> str:
        """The line of its log that says why it failed. Empty where none does."""
        for path in self.written():
            try:
                lines = read_regular(path).decode("utf-8", "replace").splitlines()
            except OSError:
                continue
            told = [line.strip() for line in lines if CAUSE.match(line)]
            if told:
                return _with_rank(told[-1], lines)[:CAUSE_CHARACTERS]
        return ""


def _with_rank(told: str, lines: Sequence[str]) -> str:
    """The launcher's line, and where the last lines of a rank follow it, the last error in these."""
    launcher, follow, _ = told.partition("; last lines:")
    inner = [line.strip() for line in lines if line.startswith(" ") and RANK_ERROR.search(line)]
    return "; ".join([launcher, *inner[-1:]]) if follow else told


def advice(failed: Sequence[FailedJob], seals: Sequence[str], results: Path) -> str:
    """In lines: what failed and why, and that finished runs stay. `seals` are those of all runs of the study in `results`."""
    done = sum(Path(seal).exists() for seal in seals)
    return "\n".join(["", *_full(results), *_lines(failed), "", _remedy(done, len(seals))])


def _remedy(done: int, asked: int) -> str:
    if done == asked:
        return "Finished runs are kept. When the cause is fixed, start the study again: it makes only what is missing."
    stay = " They stay and are not repeated." if done else ""
    return (
        f"{done} of {asked} runs are finished.{stay} Tables and figures need all runs: mend the cause and start the study again, "
        "or let the config ask for fewer (as by `exclude`)"
    )


def _lines(failed: Sequence[FailedJob]) -> Iterator[str]:
    """Which jobs failed, why, and where it is written."""
    for job in failed[:MOST_SHOWN]:
        yield f"FAILED: {job.name}"
        if cause := job.cause():
            yield f"    {cause}"
        yield from (f"    its log: {path}" for path in job.written())
        if job.logs and not job.written():
            yield "    it has written no log: read the messages above"
    if (more := len(failed) - MOST_SHOWN) > 0:
        yield f"and {more} more jobs failed"


def _full(results: Path) -> Iterator[str]:
    if is_full(results):
        yield f"{results} is full: {free(results)}. Free some, and start the study again."

"""What to do after a workflow that ended with failed jobs: which they are, why, and how to have the tables of the other runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ckptbench.errors import ConfigError
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.interval import NEVER, Interval
from ckptbench.matrix.shown import show
from ckptbench.matrix.variant import Variant
from ckptbench.remedies import free, is_full
from ckptbench.runs.layout import SEAL
from ckptbench.settings.sources import COMMAND_LINE, ConfigFile
from ckptbench.study.config import Selection, StudyConfig
from ckptbench.study.expansion import AXES, added_by, expand, matches, product_of

MOST_SHOWN = 10
"""Failed jobs that are written out."""
MOST_ENTRIES = 20
"""Entries of `exclude`. Where more are needed, none is proposed."""
NO_OTHER = "No short change of the config leaves other runs that do without what failed."
CAUSE = re.compile(r"(?:\[[\w-]+\] .*)?\b[A-Z]\w*(?:Error|Stopped|Exception|Exit)\b.*: .")
RANK_ERROR = re.compile(r"\b[A-Z]\w*(?:Error|Exception)\b: .")
QUOTED = re.compile(r"; last lines of [^;]*:$")
"""What ends a line that the lines of an output follow."""
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

    def stops(self, cell: Cell) -> bool:
        """Whether this cell cannot be trained without the job."""
        needs = {"cell": cell.id, "environment": cell.environment, "dataset": cell.dataset}
        found = {name: needs[name] for name in self.wildcards if name in needs}
        made_for_all = self.wildcards.get("environment") == "data"
        return made_for_all or (bool(found) and found == dict(self.wildcards))

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
                lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
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
    return "; ".join([launcher, *inner[-1:]]) if follow else QUOTED.sub("", told)


def advice(
    failed: Sequence[FailedJob],
    config: StudyConfig,
    cells: Sequence[Cell],
    results: Path,
    files: Sequence[Path] = (),
) -> str:
    """In lines: what failed and why, that finished runs stay, and what to write into the config to go on without the others.

    `results` is the folder of the study, `files` are its config files.
    """
    lines = ["", *_full(results), *lines_of(failed)]
    missing = [cell for cell in cells if not (results / "runs" / cell.id / SEAL).exists()]
    stopped = [cell for cell in missing if any(job.stops(cell) for job in failed)]
    done = len(cells) - len(missing)
    lines.append("")
    if not stopped:
        lines.append(
            "What is finished stays. When the cause is mended, start the study again: it makes only what is missing."
        )
        return "\n".join(lines)
    stay = " They stay and are not repeated." if done else ""
    without = _without(config, stopped, files)
    other = ", or go on without what failed:" if without else f". {NO_OTHER}"
    lines.append(
        f"{done} of {len(cells)} runs are finished.{stay} Tables and figures need all runs: mend the "
        f"cause and start the study again{other}"
    )
    return "\n".join([*lines, *without])


def lines_of(failed: Sequence[FailedJob]) -> Iterator[str]:
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


def _where(key: str, files: Sequence[Path]) -> str:
    """The last file that sets this key, else the last one: later files override."""
    for path in reversed(files):
        with suppress(ConfigError):
            if key in ConfigFile.read(path).content:
                return str(path)
    return str(files[-1]) if files else COMMAND_LINE


def _without(config: StudyConfig, stopped: Iterable[Cell], files: Sequence[Path]) -> list[str]:
    """The lines that say what to change in the config so that it asks for none of these cells. Empty where no few changes do."""
    gone = {replace(cell, repeat=0) for cell in stopped}
    entries = exclusions(config, gone)
    drops = _drops(config, gone)
    try:
        left = expand(config.model_copy(update=_changes(config, entries, drops)))
    except ConfigError:
        left = []
    if not left or gone & {replace(cell, repeat=0) for cell in left}:
        return []
    lines = []
    if entries:
        lines.append(f"in {_where('exclude', files)}, add to `exclude:` (all repeats go):")
        lines += [f"  - {in_yaml(entry)}" for entry in entries]
    for index, entry in drops.items():
        also = f", or leave {in_yaml(entry)} out of its lists" if entry else ""
        lines.append(
            f"in {_where('include', files)}, drop include[{index}], which asks for what failed{also}"
        )
    runs = "1 run" if len(left) == 1 else f"{len(left)} runs"
    lines.append(f"Then the study asks for {runs}, and its tables are of these.")
    return lines


def _changes(
    config: StudyConfig, entries: Sequence[Mapping[str, object]], drops: Mapping[int, object]
) -> dict[str, object]:
    return {
        "exclude": [*config.exclude, *(Selection.model_validate(entry) for entry in entries)],
        "include": [each for index, each in enumerate(config.include) if index not in drops],
    }


def _needs(cell: Cell, gone: set[Cell]) -> bool:
    """Whether the cell is gone, or is compared with one that is."""
    return not gone.isdisjoint((cell, cell.baseline, cell.reference))


def exclusions(config: StudyConfig, gone: set[Cell]) -> list[dict[str, object]]:
    """The shortest entries of `exclude` found that match all cells of the matrix that need one of `gone`, and no others."""
    cells = product_of(config)
    for selection in config.exclude:
        cells = [cell for cell in cells if not matches(cell, selection)]
    return _entries([cell for cell in cells if _needs(cell, gone)], cells)


def _entries(unwanted: Sequence[Cell], cells: Sequence[Cell]) -> list[dict[str, object]]:
    wanted = [cell for cell in cells if cell not in unwanted]
    varying = [axis for axis in AXES if len({_written(cell, axis) for cell in cells}) > 1]
    entries: list[tuple[dict[str, object], Selection]] = []
    for cell in unwanted:
        if any(matches(cell, selection) for _, selection in entries):
            continue
        if len(entries) == MOST_ENTRIES:
            return []
        entry = {axis: _value(cell, axis) for axis in varying if _value(cell, axis) is not None}
        for axis in reversed(varying):
            fewer = {name: value for name, value in entry.items() if name != axis}
            selection = Selection.model_validate(fewer)
            if fewer and not any(matches(other, selection) for other in wanted):
                entry = fewer
        if entry:
            entries.append((entry, Selection.model_validate(entry)))
    return [entry for entry, _ in entries]


def _drops(config: StudyConfig, gone: set[Cell]) -> dict[int, dict[str, object]]:
    """The entries of `include` that ask for a cell that needs one of `gone`: by their index, what to leave out of their lists."""
    drops: dict[int, dict[str, object]] = {}
    for index, addition in enumerate(config.include):
        cells = added_by(config, index, addition)
        unwanted = [cell for cell in cells if _needs(cell, gone)]
        if unwanted:
            found = _entries(unwanted, cells)
            drops[index] = found[0] if len(found) == 1 and len(unwanted) < len(cells) else {}
    return drops


def _written(cell: Cell, axis: str) -> str:
    return str(getattr(cell, axis))


def _value(cell: Cell, axis: str) -> object:
    """The value of the cell as a config writes it. None where a config cannot ask for it: a baseline has no format."""
    value = getattr(cell, axis)
    if cell.interval == NEVER and axis in ("format", "strategy"):
        return None
    if isinstance(value, Interval):
        unit = value.every if value.unit == "epochs" else f"{value.every} steps"
        return unit if value.every else "never"
    return value.to_json() if isinstance(value, Variant) else value


def in_yaml(value: object) -> str:
    """The value in one line of YAML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {in_yaml(each)}" for name, each in value.items()) + "}"
    if isinstance(value, str):
        return value if re.fullmatch(r"[A-Za-z_][\w.-]*", value) else f'"{value}"'
    return show(value)

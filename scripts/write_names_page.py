"""docs/names.md, written from the registries: `python scripts/write_names_page.py > docs/names.md`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from itertools import starmap

from ckptbench.matrix.networks.models import ARCHITECTURES
from ckptbench.matrix.plugin_spec import Entry, Option
from ckptbench.matrix.registry import (
    FAULTS,
    FRAMEWORKS,
    RECOVERIES,
    STRATEGIES,
)

INTRODUCTION = """\
# Words and names

What do the words of these pages mean, and what can a config name? Written from `src/ckptbench/matrix` by
`python scripts/write_names_page.py`; a test fails where the two differ. [config/README.md](../config/README.md) explains the fields,
[strategies.md](strategies.md) strategies, recoveries and their options.
"""
GLOSSARY = {
    "attempt": "start of a run's ranks; a run that is restarted has several",
    "baseline": "a cell's twin without checkpoints and failures",
    "best interval": "whole number of steps with the highest goodput; *fine* ones lose at most a fifth more",
    "cell": "a point of the matrix, with its repeat; its name is that of its run folder",
    "commit": "rename after which a version counts as complete",
    "digest": "checksum of one tensor's bits",
    "disturbed run": "one during which others used the machine noticeably",
    "durable": "committed on stable storage, fsync included; durable time counts from the start of the save",
    "failure rate": "mean GPU-hours between two failures",
    "goodput": "useful training time ÷ wall time",
    "history": "`whole`, or `again`: a second run of the same seed; tables name the faults here too",
    "interval": "epochs or steps between two checkpoints",
    "launcher": "process that starts and watches the ranks of one run",
    "level": "where a version lies: memory of the node, disk of the node, shared folder",
    "local tier": "level `memory` or `node`, lost with its node",
    "lock": "exact packages of an environment, with checksums",
    "negative control": "run that is wrong on purpose, to show that a check can fail",
    "node": "one machine of a run",
    "overhead": "(time with checkpoints - time without) ÷ time without",
    "profile": "how and where jobs run, never what is studied",
    "projected": "computed past what was measured",
    "rank": "one training process, with one GPU or a share of the CPU",
    "recovery": "how training goes on after a failure",
    "repeat": "one of several runs of a setup, with a seed of its own",
    "requeue": "return of a stopped job into the scheduler's queue",
    "resume proof": "bit-for-bit comparison of a restarted run with an uninterrupted one",
    "run": "one execution of a cell",
    "seal": "checksums of a run's files, written last",
    "setup": "all that makes a cell but its repeat",
    "share": "a rank's part of a version",
    "slowdown": "extra time of steps while a save goes on in the background",
    "spare": "removed version whose files are written over",
    "stall": "time in which a checkpoint blocks the training loop, on the slowest rank",
    "steady state": "checkpoints after the first `keep_during_run` + 1 of a run",
    "strategy": "who writes what of a checkpoint, and when",
    "survivors": "ranks that go on after others were lost",
    "torn": "of a version: not the state of its step",
    "trace": "events of one rank, with times",
    "version": "one checkpoint on storage",
    "warm-up": "first steps, left out of rates",
}
"""The field's words as these pages use them."""

OWN = "the framework's"


def document() -> str:
    """The whole page."""
    sections = {
        "Words": [f"**{word}**: {meaning}" for word, meaning in GLOSSARY.items()],
        "Frameworks, and their formats, the default first": [
            f"{_code(name)}: {_codes(entry.formats)}" for name, entry in FRAMEWORKS.items()
        ],
        "Models": [
            f"{_code(name)}: {(inspect.getdoc(build) or '').partition(chr(10))[0]}"
            for name, build in ARCHITECTURES.items()
        ],
        "Strategies: frameworks, formats, options with defaults": [
            f"{_code(name)} ({_codes(entry.frameworks)}; {_codes(entry.formats, OWN)}){_options(entry)}"
            for name, entry in STRATEGIES.items()
        ],
        "Faults: options with defaults": [
            f"{_code(name)}{_options(entry)}" for name, entry in FAULTS.items()
        ],
        "Recoveries: frameworks, strategies, options with defaults": [
            f"{_code(name)} ({_codes(entry.frameworks)}; {_codes(entry.strategies)}){_options(entry)}"
            for name, entry in RECOVERIES.items()
        ],
    }
    lists = (
        "\n".join([f"## {title}", "", *(f"- {row}" for row in rows), ""])
        for title, rows in sections.items()
    )
    return "\n".join([INTRODUCTION, *lists])


def _options(entry: Entry) -> str:
    options = ", ".join(starmap(_option, entry.options.items()))
    return f": {options}" if options else ""


def _option(name: str, default: Option | tuple[str, ...]) -> str:
    value, *others = default if isinstance(default, tuple) else (default,)
    if value == "":
        return f"{_code(name)}, of a list under `failures`"
    words = _code(f"{name}: {str(value).lower() if isinstance(value, bool) else value}")
    return f"{words} (or {_codes(others)})" if others else words


def _code(name: str) -> str:
    return f"`{name}`"


def _codes(names: Iterable[str] | None, every: str = "all") -> str:
    return every if names is None else ", ".join(map(_code, names))


if __name__ == "__main__":
    print(document(), end="")

"""`ckptbench-probe check`: each of its verbs is a module here, with `add(verbs)` for its words and `run(options)` that returns its exit code."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ckptbench_probe.check.asked import CANNOT_TELL_CODE
from ckptbench_probe.harmless import harmless

if TYPE_CHECKING:
    from ckptbench_probe.options import Verbs

VERBS = {verb: verb for verb in ("saves", "resume", "stop", "kill", "powercut", "fail")} | {
    "all": "every"
}
"""The module of each, which is loaded where it is named."""


def load(verb: str) -> Any:
    return import_module(f"ckptbench_probe.check.{VERBS[verb]}")


def add(verbs: Verbs, words: Sequence[str] = ()) -> None:
    """All of them, or the one that `words` begin with."""
    check = verbs.add_parser(
        "check",
        help="check whether saved files are whole, whether training resumes as if never killed, whether it saves when it is stopped, and whether a kill, a power cut or a full disk during a save leaves a whole checkpoint",
    )
    own = check.add_subparsers(dest="check", required=True, metavar=" | ".join(VERBS))
    named = [verb for verb in words[:1] if verb in VERBS]
    for verb in named or VERBS:
        load(verb).add(own)


def run(options: argparse.Namespace) -> int:
    """What goes wrong in the check itself is said, and it cannot tell."""
    code: int | None = harmless(lambda: load(options.check).run(options))()
    return CANNOT_TELL_CODE if code is None else code

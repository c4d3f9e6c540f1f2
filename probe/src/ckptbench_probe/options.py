"""What the options of all verbs have in common: each is given once, and some replace what was measured."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ckptbench_probe.answer import Overrides
from ckptbench_probe.words import number_of, seconds

if TYPE_CHECKING:
    Verbs = argparse._SubParsersAction[argparse.ArgumentParser]
    """To which a verb adds its own parser."""

_GIVEN = "given options"


class _Once(argparse.Action):
    """Stores a value, and refuses a second one: argparse would take the last without a word."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        given = vars(namespace).setdefault(_GIVEN, set())
        if option_string is not None and self.dest in given:
            parser.error(f"{option_string} is given twice: give it once")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """Whose options are given once, also those of its verbs."""

    def __init__(self, *words: Any, **named: Any) -> None:
        super().__init__(*words, **named)
        self.register("action", None, _Once)


def with_overrides() -> Parser:
    """The parent of the parsers of verbs that answer how often to save."""
    parser = Parser(add_help=False)
    parser.add_argument(
        "--gpus",
        type=number_of("GPUs"),
        help="compute the answer for that number of GPUs; default: the number of ranks",
    )
    parser.add_argument(
        "--mtbf",
        type=seconds,
        help="mean time between failures of the job, as 14h; how often to save depends on it",
    )
    parser.add_argument(
        "--restart",
        type=seconds,
        help="from a failure until training continues, as 8min; default: as long as this start took",
    )
    return parser


def overrides_of(options: argparse.Namespace) -> Overrides:
    return Overrides(
        gpus=options.gpus,
        mtbf_s=options.mtbf,
        restart_s=options.restart,
        tool=getattr(options, "tool", None),
    )

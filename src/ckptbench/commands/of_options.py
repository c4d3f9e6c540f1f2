"""The answer from options alone. It needs no table, and so imports nothing that is slow to import."""

from __future__ import annotations

from ckptbench.commands.asked import Asked
from ckptbench.commands.case import answer
from ckptbench.commands.printed import paragraph, remarks, table
from ckptbench.commands.told import Told


def told(asked: Asked) -> Told:
    """Raises ConfigError or DataError where a file with a failure rate cannot be read."""
    case = asked.case()
    choices = answer(case)
    sentences = (case.failing.said, *remarks(choices))
    return Told(
        text=table(choices) + "\n" + "".join(map(paragraph, sentences)),
        gpus=case.gpus,
        failures_per_s=float(case.failing.per_s[0]),
        choices=choices,
        remarks=sentences,
    )

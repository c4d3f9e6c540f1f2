"""`--help` in groups, with what is required first, and options that are given once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar

import click

Groups = Mapping[str, Sequence[str]]
"""The title of each group, and the options in it as people write them."""
OTHERS = "More"


class Grouped(click.Command):
    """Shows its options in groups. Refuses one that is given twice and takes one value: click would take the last one without a word."""

    groups: ClassVar[Groups] = {}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """In the order of the groups; what none names comes last."""
        records = {param.opts[-1]: param.get_help_record(ctx) for param in self.get_params(ctx)}
        named = {name for names in self.groups.values() for name in names}
        groups = {**self.groups, OTHERS: [name for name in records if name not in named]}
        for title, names in groups.items():
            if rows := [record for name in names if (record := records[name])]:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, [*args])  # which names a wrong value first
        _, _, order = self.make_parser(ctx).parse_args([*args])
        for param, times in Counter(order).items():
            if times > 1 and isinstance(param, click.Option) and not param.multiple:
                raise click.UsageError(f"{param.opts[0]}: given {times} times: give it once", ctx)
        return rest

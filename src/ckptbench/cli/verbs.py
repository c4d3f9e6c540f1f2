"""The verbs of the command, with their options. What a verb needs is imported when it runs."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ckptbench import __version__
from ckptbench.cli.options import (
    A_BLOCKING,
    AN_ASYNCHRONOUS,
    BANDWIDTH,
    COUNT,
    DAYS,
    EVERY,
    SIZE,
    STATES,
    TIME,
)
from ckptbench.common.errors import DataError
from ckptbench.common.remedies import blame

WRONG_USE = 2
WIDTH = 80
"""Of an answer that goes to no terminal."""
NARROWEST, WIDEST = 40, 100
"""Of one on a terminal: longer lines of prose are hard to read, and numbers are never broken."""
FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
NEW_FILE = click.Path(dir_okay=False, path_type=Path)


def run(arguments: Sequence[str]) -> int:
    """Run the verb that the arguments name, and return the exit status. What is wrong with options is told in one line."""
    try:
        done = ckptbench.main(list(arguments), prog_name="ckptbench", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.Abort:
        click.echo("Error: interrupted", err=True)
        return 1
    except click.ClickException as error:
        click.echo(f"Error: {error.format_message()}", err=True)
        return error.exit_code
    return done if isinstance(done, int) else 0


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="ckptbench")
def ckptbench() -> None:
    """What checkpoints cost, and how often to take them."""


class Once(click.Command):
    """Refuses an option that is given twice and takes one value: click would take the last one without a word."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, [*args])  # which names a wrong value first
        _, _, order = self.make_parser(ctx).parse_args([*args])
        for param, times in Counter(order).items():
            if times > 1 and isinstance(param, click.Option) and not param.multiple:
                raise click.UsageError(f"{param.opts[0]}: given {times} times: give it once", ctx)
        return rest


# fmt: off
@ckptbench.command(cls=Once)
@click.option("--gpus", type=COUNT, metavar="NUMBER", help="How many train together.")
@click.option("--mtbf", type=TIME, help="Mean time between failures of the whole job.")
@click.option("--gpu-mtbf", type=TIME, help="The same of one GPU: that of the job, times its GPUs.")
@click.option("--rate", metavar="NAME|FILE", help="A published failure rate, such as llama3, or a file like those.")
@click.option("--log", type=FILE, metavar="FILE", help="Your own log of failures, or a table of sacct.")
@click.option("--count", type=STATES, help="Jobs of sacct in these states failed too: --count PREEMPTED,TIMEOUT.")
@click.option("--failures", type=click.IntRange(0, 100_000), metavar="NUMBER", help="Your own count of failures of the job, in --days.")
@click.option("--days", type=DAYS, help="Days in which --failures came: --failures 3 --days 7.")
@click.option("--step", type=TIME, help="One step of the training, without checkpoints.")
@click.option("--blocking", type=A_BLOCKING, multiple=True, help="Training stops so long for a checkpoint. Several have names: sharded=20s.")
@click.option("--async", "asynchronous", type=AN_ASYNCHRONOUS, multiple=True, help="Training stops for the first time; the second time later the checkpoint is durable.")
@click.option("--state", type=SIZE, help="Size of a checkpoint: with --bandwidth in place of the time to write it.")
@click.option("--bandwidth", type=BANDWIDTH, help="How fast all GPUs together write it.")
@click.option("--rank-bandwidth", type=BANDWIDTH, help="How fast one GPU writes its part.")
@click.option("--shared-by", type=COUNT, metavar="NUMBER", help="So many GPUs hold one copy of the state in parts: all where nothing is said (FSDP); 1: each has all of it.")
@click.option("--write-fixed", type=TIME, help="What each write takes besides.")
@click.option("--restart", type=TIME, help="From a failure until training goes on.")
@click.option("--now", type=EVERY, help='The interval in use, as in 2h or "2880 steps": of the first strategy.')
@click.option("--study", type=FOLDER, metavar="FOLDER", help="Take the costs that a study measured: its folder results/tables.")
@click.option("--costs", type=FILE, metavar="FILE", help="Take the costs of a file like config/costs-example.yaml.")
@click.option("--training-log", "training_logs", type=FILE, multiple=True, metavar="FILE", help="Take step and save times from a log that is there: of Megatron-LM, torchtitan, nanoGPT, Hugging Face (trainer_state.json, progress bars) or Lightning (metrics.csv). Several, one for each start, are joined in time. Other options win, and say what it does not tell.")
@click.option("--log-pattern", multiple=True, metavar="REGEX", help="Read any other log by Python's regular expressions, with groups named step, step_s, step_ms, time, save, save_s, save_ms.")
@click.option("--save-steps", is_flag=True, help="Print settings to copy into programs for training.")
@click.option("--html", type=NEW_FILE, metavar="FILE", help="Write the calculator too, a page filled with the costs of --study, --costs or --training-log.")
@click.option("--explain", is_flag=True, help="Print all notes too, and what each row loses it to: saves, lost work, restarts.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV: a row a strategy, with the keys of --json.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: docs/decision.md says what its keys mean.")
def decide(save_steps: bool, explain: bool, as_csv: bool, as_json: bool, html: Path | None, **options: Any) -> None:
    """How often to checkpoint, and what that loses.

    A time is written with its unit: 90s, 8 min, 2h, 14 hours. So are a size (98GB, 512 GiB) and a bandwidth (1.6GB/s).

    \b
    ckptbench decide --gpus 256 --mtbf 14h --step 2.5s \\
        --blocking 60s --async 3s+90s --restart 8min --now 2h
    """
    from ckptbench.cli.options import Options

    forms = {"--save-steps": save_steps, "--explain": explain, "--csv": as_csv, "--json": as_json}
    if len(given := [name for name, is_given in forms.items() if is_given]) > 1:
        raise click.UsageError(f"{' and '.join(given)}: give one of them")
    parsed = Options(**options)
    parsed.check()
    if html is not None and not parsed.is_of_tables:
        raise click.UsageError("--html: give --study, --costs or --training-log too, which fill it; ckptbench page writes one to fill in")
    if parsed.is_of_tables:
        from ckptbench.cli.tables import answer_from_tables, page_of_tables

        answer = answer_from_tables(parsed)
        if html is not None:
            _write(html, page_of_tables(parsed))
    else:
        from ckptbench.cli.printed import answer_from_options

        answer = answer_from_options(parsed)
    if save_steps or as_csv or as_json:
        text = answer.json() if as_json else answer.csv() if as_csv else answer.save_steps()
        click.echo(text, nl=False)
        return
    width, color = terminal()
    click.echo(answer.text(width, explain=explain, color=color), nl=False, color=color)
# fmt: on


def terminal() -> tuple[int, bool]:
    """The width of an answer, and whether it has colours: on a terminal that may have them."""
    if not sys.stdout.isatty():
        return WIDTH, False
    width = shutil.get_terminal_size((WIDTH, 24)).columns
    color = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return max(NARROWEST, min(width, WIDEST)), color


@ckptbench.command()
@click.argument("file", type=NEW_FILE)
def page(file: Path) -> None:
    """Write the calculator to FILE: one HTML file that computes in the browser, and asks the network for nothing."""
    from ckptbench.cli.tables import usual
    from ckptbench.decide.rates import published, read_rates
    from ckptbench.report.page import html

    _write(file, html.page(None, read_rates(published()), usual()))


def _write(file: Path, text: str) -> None:
    if not file.parent.is_dir():
        raise DataError(
            f"{file}: cannot be written: there is no folder {file.parent}: make it, or name a file elsewhere"
        )
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        told = blame(error, file, "name a file elsewhere")
        raise DataError(f"{file}: cannot be written: {told}") from None

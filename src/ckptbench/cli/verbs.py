"""The verbs of the command, with their options. What a verb needs is imported when it runs."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import click

from ckptbench import __version__
from ckptbench.cli.help import Grouped, Groups
from ckptbench.cli.types import (
    A_BLOCKING,
    AN_ASYNCHRONOUS,
    BANDWIDTH,
    COUNT,
    DAYS,
    EVERY,
    FAILURES,
    FILE,
    LOG,
    MTBF,
    NEW_FILE,
    PARAMS,
    PART,
    PRICES,
    SIZE,
    STATES,
    STEP,
    TABLES,
    TIME,
)
from ckptbench.common.errors import DataError, for_reader
from ckptbench.common.remedies import blame
from ckptbench.decide.state_bytes import DTYPES, OPTIMIZERS
from ckptbench.report.answer.programs import PROGRAMS

WRONG_USE = 2
WIDTH = 80
"""Of an answer that goes to no terminal."""
CALLED_OTHERWISE = {"--stall": "--blocking or --async", "--interval": "--now"}
"""Options by the words of the pages and of other tools."""
NARROWEST, WIDEST = 40, 100
"""Of one on a terminal: longer lines of prose are hard to read, and numbers are never broken."""


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
        if isinstance(error, click.NoSuchOption) and error.option_name in CALLED_OTHERWISE:
            error = click.UsageError(f"No such option '{error.option_name}': give {CALLED_OTHERWISE[error.option_name]}", error.ctx)  # fmt: skip
        click.echo(for_reader(f"Error: {error.format_message()}"), err=True)
        return error.exit_code
    return done if isinstance(done, int) else 0


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="ckptbench")
def ckptbench() -> None:
    """What checkpoints cost, and how often to take them."""


class Decide(Grouped):
    """The verb that answers."""

    groups: ClassVar[Groups] = {
        "How often it fails (one of these)": ("--mtbf", "--failures", "--days", "--log", "--count", "--gpu-mtbf", "--rate"),
        "The training (give the first three, or a file)": ("--gpus", "--step", "--restart", "--now", "--limit", "--warning", "--announced", "--disk", "--memory", "--gpu-hour-price"),
        "What a save takes (--blocking, --async, both, a size, or a file)": ("--blocking", "--async"),
        "What a save takes, from its size": ("--state", "--params", "--optimizer", "--dtype", "--bandwidth", "--rank-bandwidth", "--shared-by", "--write-fixed"),
        "From files": ("--training-log", "--log-pattern", "--costs", "--study"),
        "The answer": ("--explain", "--save-steps", "--for", "--csv", "--json", "--html", "--help"),
    }  # fmt: skip

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        files = [each for each in args if Path(each).is_file()]
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if "extra argument" in error.message and any(each in error.message for each in files):
                words = f"{error.message}: write its option before each file, as --training-log A --training-log B"
                raise click.UsageError(words, ctx) from None
            raise


# fmt: off
@ckptbench.command(cls=Decide)
@click.option("--gpus", type=COUNT, metavar="NUMBER", help="GPUs that train together. Without: those in --log (AllocTRES) or --training-log.")
@click.option("--mtbf", type=MTBF, help="Mean time between failures of the job, as in 14h; or a rate, 3/week.")
@click.option("--gpu-mtbf", type=TIME, help="Mean time between failures of one GPU, as in 50000h.")
@click.option("--rate", metavar="NAME|FILE", help="A published failure rate: llama3, opt-175b, kokolis-1k, kokolis-rsc-1, kokolis-rsc-2, delta-a100-gsp, delta-a100-memory, delta-h100-memory; or a file like those.")
@click.option("--log", type=LOG, metavar="FILE", help="Jobs as sacct prints them, or a list of failures.")
@click.option("--count", type=STATES, help="With --log: also count jobs in these states, as in PREEMPTED,TIMEOUT.")
@click.option("--failures", type=FAILURES, help="Failures that you counted, in --days days; or a rate, 4/week.")
@click.option("--days", type=DAYS, help="With --failures: the days in which you counted them, as in --failures 3 --days 7.")
@click.option("--step", type=STEP, help="One step without a save: 2.5s, 1.2s/it or 0.83it/s.")
@click.option("--blocking", type=A_BLOCKING, multiple=True, help="How long each save stops training. To compare several, name them: sharded=20s.")
@click.option("--async", "asynchronous", type=AN_ASYNCHRONOUS, multiple=True, help="Each save stops training for STOP; the checkpoint is safe on storage WRITE later, as in 3s+90s.")
@click.option("--state", type=SIZE, help="Size of a checkpoint.")
@click.option("--params", type=PARAMS, help="Number of parameters, as 7B, in place of --state.")
@click.option("--optimizer", type=click.Choice([*OPTIMIZERS], case_sensitive=False), metavar="NAME", help=f"Optimizer, for --params: adamw (default), {', '.join([*OPTIMIZERS][1:])}.")
@click.option("--dtype", type=click.Choice([*DTYPES], case_sensitive=False), metavar="NAME", help="Precision, for --params: bf16 (default) or fp16, both with a copy in fp32; fp32; pure-bf16.")
@click.option("--bandwidth", type=BANDWIDTH, help="How fast all GPUs together write.")
@click.option("--rank-bandwidth", type=BANDWIDTH, help="How fast one GPU writes its part.")
@click.option("--shared-by", type=COUNT, metavar="NUMBER", help="Number of GPUs across which one copy of the state is sharded: all by default (FSDP), 1 for DDP.")
@click.option("--write-fixed", type=TIME, help="Fixed overhead of each write.")
@click.option("--restart", type=TIME, help="From a failure until training goes on. Without: the gap between two starts in --training-log.")
@click.option("--now", type=EVERY, help='How often you save today, computed with the first --blocking, else --async: 2h or "2880 steps".')
@click.option("--limit", type=TIME, help="Time limit of a job, as in 24h.")
@click.option("--warning", type=TIME, help="Time from the warning to the failure, as 2min on spot machines: no work is lost if a save fits.")
@click.option("--announced", type=PART, help="With --warning: the part of failures that are announced, as 80%. Default: the part that are preemptions in --log.")
@click.option("--disk", type=SIZE, help="Room for checkpoints, as 2TB: how many fit, and how many to keep.")
@click.option("--memory", type=SIZE, help="Free host memory of a node: strategies whose copy does not fit are left out.")
@click.option("--gpu-hour-price", type=PRICES, help="Price of a GPU-hour, as 2.5, '$2.5' or '2.5 EUR' (quoted): losses in money too.")
@click.option("--study", type=TABLES, metavar="FOLDER", help="Costs that a study measured: its folder results.")
@click.option("--costs", type=FILE, metavar="FILE", help="Costs in a file like config/costs-example.yaml.")
@click.option("--training-log", "training_logs", type=LOG, multiple=True, metavar="FILE", help="Log of a training: Megatron-LM, torchtitan, nanoGPT, Hugging Face (trainer_state.json, progress bars), Lightning (metrics.csv). Several logs (one per start) are joined by time. Options override the log and fill its gaps.")
@click.option("--log-pattern", multiple=True, metavar="REGEX", help="For any other log: Python's regular expressions with groups named step, step_s, step_ms, time, save, save_s, save_ms.")
@click.option("--save-steps", is_flag=True, help="Print the setting to copy into your program.")
@click.option("--for", "tools", multiple=True, type=click.Choice([*PROGRAMS]), metavar="PROGRAM", help=f"Print what to paste into {', '.join(PROGRAMS)}; several may be named.")
@click.option("--html", type=NEW_FILE, metavar="FILE", help="Also write the calculator, a page filled with --study, --costs or --training-log.")
@click.option("--explain", is_flag=True, help="Also print all notes, and split each loss into saves, lost work and restarts.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV: one row per strategy, with its keys from --json.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; docs/decision.md explains its keys.")
def decide(save_steps: bool, explain: bool, as_csv: bool, as_json: bool, html: Path | None, **options: Any) -> None:
    """How often to checkpoint, and what that loses.

    Write a unit after each time, size and rate: 90s, 8 min, 2h, 1-02:00:00; 98GB, 512 GiB; 1.6GB/s.

    \b
    ckptbench decide --gpus 256 --mtbf 14h --step 2.5s \\
        --blocking 60s --async 3s+90s --restart 8min --now 2h
    """
    from ckptbench.cli.checks import check
    from ckptbench.cli.options import Options

    forms = {"--save-steps": save_steps, "--explain": explain and not save_steps, "--csv": as_csv, "--json": as_json}
    if len(given := [name for name, is_given in forms.items() if is_given]) > 1:
        raise click.UsageError(f"{' and '.join(given)}: give one of them")
    if options["tools"] and (as_csv or as_json):
        raise click.UsageError(f"--for and {'--csv' if as_csv else '--json'}: give one of them")
    parsed = Options(**options)
    if not parsed.is_of_tables:
        parsed = parsed.with_gpus_of_log()
    check(parsed)
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
        for warning in (answer.remarks if explain else answer.warnings) if save_steps else ():
            click.echo(for_reader(warning), err=True)
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

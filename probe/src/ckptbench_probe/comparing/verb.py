"""The words of `ckptbench-probe compare`, and what it does with them."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from types import FrameType
from typing import TYPE_CHECKING, Any

from ckptbench_probe.answer import Overrides
from ckptbench_probe.check.runs import LOG
from ckptbench_probe.comparing import figure, report
from ckptbench_probe.comparing.estimates import Measured, Result, result
from ckptbench_probe.comparing.runs import (
    OutputError,
    Planned,
    end_left_over,
    locked,
    make,
    others,
    plan,
)
from ckptbench_probe.comparing.settings import (
    Setting,
    SettingsError,
    Values,
    expand,
    in_blocks,
    read_baseline,
    read_values,
)
from ckptbench_probe.costs import Costs
from ckptbench_probe.costs import text as text_of_costs
from ckptbench_probe.harmless import harmless, say, say_lines
from ckptbench_probe.launcher import CannotStartError, words_of
from ckptbench_probe.options import overrides_of, with_overrides
from ckptbench_probe.reading import UnreadableError
from ckptbench_probe.screen import WIDTH
from ckptbench_probe.variables import task_of_slurm
from ckptbench_probe.words import counted, duration, number_of

if TYPE_CHECKING:
    from ckptbench_probe.options import Verbs

TABLE, FIGURE, COSTS = "compare.csv", "compare.png", "costs.yaml"
INCOMPLETE, USAGE = 1, 2
"""Exit codes: a run has failed or does not count; nothing was run."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(KeyboardInterrupt):
    """The user or the scheduler ends the comparison."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def add(verbs: Verbs, _words: Sequence[str] = ()) -> None:
    own = verbs.add_parser(
        "compare",
        parents=[with_overrides()],
        help="measure what other intervals, engines or options of saving cost",
        usage="ckptbench-probe compare --value NAME=A,B --baseline NAME=X [options] -- COMMAND ... {NAME} ... {folder} ...",
        description="Runs the command with every combination of values, in blocks: each block has every setting and, beside it, its baseline without "
        'checkpoints. After an interruption start the same command again: finished runs are kept. In its table, "added per step" is the '
        "mean extra time per step (added_step_s in compare.csv). On a cluster start it once in an allocation, with the launcher in the command: -- srun python train.py --out {folder}. Exit codes: 0 all runs count, 1 some do not, 2 nothing was run.",
    )
    own.add_argument("--value", action="append", default=[], metavar="NAME=A,B", help="the values that replace {NAME}, one run per block; several --value: all combinations. A value may have several words, or be empty")  # fmt: skip
    own.add_argument("--baseline", action="append", default=[], metavar="NAME=X", help="a value with which nothing is saved, as interval=1000000; each combination of the other values has its own baseline")  # fmt: skip
    own.add_argument("--repeats", type=number_of("blocks"), default=3, metavar="N", help="number of blocks; default: %(default)s")  # fmt: skip
    own.add_argument("--folder", dest="output", type=Path, default=Path("compare"), metavar="FOLDER", help="folder for all measurements; the {folder} of each run is in it until the run ends; default: %(default)s")  # fmt: skip
    own.add_argument("--timeout", type=number_of("minutes"), metavar="MINUTES", help="time limit of each run; default: none")  # fmt: skip
    own.add_argument("-n", "--dry-run", action="store_true", help="only list the runs, and how many are done")  # fmt: skip
    own.add_argument("--json", action="store_true", help="print the numbers on standard output")
    own.add_argument("command", nargs=argparse.REMAINDER, help="after --, with each {NAME} in its place, and {folder} for its folder of checkpoints")  # fmt: skip


def run(options: argparse.Namespace) -> int:
    overrides = overrides_of(options)
    command = words_of(options.command)
    output = options.output.resolve()
    try:
        if task_of_slurm(os.environ) is not None:
            raise SettingsError("compare was started once for each task: start it once, with srun after --")  # fmt: skip
        values = read_values(options.value)
        settings = expand(command, values, read_baseline(options.baseline, values))
        planned = plan(output, in_blocks(settings, options.repeats))
        if options.dry_run:
            _list(planned)
            return 0
        with locked(output), _told_to_stop():
            _make_all(planned, output, options.timeout)
            told = _estimate(planned, settings, overrides)
            no_figure = _write(told, output, overrides)
            _print(told, output, overrides, no_figure, as_json=options.json)
            whole = len(told.runs) == len(planned) and not told.left_out
            return 0 if whole else INCOMPLETE
    except (SettingsError, OutputError, CannotStartError, UnreadableError) as error:
        say(str(error))
        return USAGE
    except OSError as error:
        say(f"{error.filename or output}: {error.strerror}: measurements so far are kept, and the same command continues")  # fmt: skip
        return INCOMPLETE
    except Stopped as stopped:
        there = sum(one.is_there for one in planned)
        say(f"stopped: {there} of {counted(len(planned), 'run')} are done and kept; the same command continues")  # fmt: skip
        return 128 + stopped.number


@contextmanager
def _told_to_stop() -> Iterator[None]:
    def stop(number: int, _frame: FrameType | None) -> None:
        for one in ENDING:
            signal.signal(one, signal.SIG_IGN)  # while the processes of the run are ended
        raise Stopped(number)

    # A signal that was ignored at the start, as `nohup` does, stays ignored.
    heard = [one for one in ENDING if signal.getsignal(one) is not signal.SIG_IGN]
    before = {one: signal.signal(one, stop) for one in heard}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _list(planned: Sequence[Planned]) -> None:
    for one in planned:
        print(f"{'there  ' if one.is_there else 'to run '} block {one.block}  {one.setting.label}: {shlex.join(one.command)}")  # fmt: skip
    print(f"{sum(one.is_there for one in planned)} of {counted(len(planned), 'run')} are done")


def _make_all(planned: Sequence[Planned], output: Path, timeout_minutes: int | None) -> None:
    left = end_left_over(output)
    if left:
        which = "1 process" if left == 1 else f"{left} processes"
        say(f"{which} of a comparison that was killed still ran, and {'was' if left == 1 else 'were'} ended")  # fmt: skip
    waiting = [one for one in planned if not one.is_there]
    if len(waiting) < len(planned):
        say(f"{len(planned) - len(waiting)} of {counted(len(planned), 'run')} are done and kept")
    aside = others(output, planned)
    if aside:
        shown = "; ".join(dict.fromkeys(aside))
        say(f"{counted(len(aside), 'run')} in {output} with other values, another command or an edited script, not counted: {shown}")  # fmt: skip
    took_s: list[float] = []
    for number, one in enumerate(waiting):
        ahead = f", {duration(fmean(took_s) * (len(waiting) - number))} to go" if took_s else ""
        say(f"run {len(planned) - len(waiting) + number + 1} of {len(planned)}: {one.label}{ahead}")
        record = make(one, None if timeout_minutes is None else 60.0 * timeout_minutes)
        took_s.append(record["took_s"])
        if record["failed"]:
            say(f"{one.label} does not count: {record['failed']}")


@dataclass(frozen=True)
class _Told:
    """What the runs say, before it is written or printed."""

    runs: Sequence[Measured]
    results: Sequence[Result]
    ways: dict[Values, Result]
    known: Sequence[Costs]
    """Of each of the ways to save."""
    failed: Sequence[tuple[Planned, dict[str, Any]]]
    """With their records."""
    left_out: Sequence[tuple[Planned, str]]
    """Runs that ended well, but whose times do not count, and why."""

    @property
    def title(self) -> str:
        return next((one.script for one in self.runs), "my training")


def _estimate(
    planned: Sequence[Planned], settings: Sequence[Setting], overrides: Overrides
) -> _Told:
    runs, left_out = [], []
    for one in (each for each in planned if each.is_there):
        try:
            runs.append(Measured.of(one))
        except UnreadableError as error:  # of another version, or damaged since
            left_out.append((one, f"{error}, or remove {one.folder} to make the run again"))
    left_out += [(one.planned, one.untimed) for one in runs if one.untimed]
    results = _results(settings, [one for one in runs if not one.untimed])
    ways = report.strategies(results)
    costs = [report.costs_of_way(*each, overrides) for each in ways.items()]
    failed = [(one, record) for one in planned if (record := one.record()) and record["failed"]]
    return _Told(
        runs, results, ways, report.with_quickest_baseline_step(costs, results), failed, left_out
    )


def _write(told: _Told, output: Path, overrides: Overrides) -> str:
    """The costs, the table and the figure. Returns why there is no figure; empty: there is one."""
    if told.known:
        ranks = max(run.measures.ranks for run in told.runs)
        content = text_of_costs(*told.known, title=told.title, gpus=overrides.gpus or ranks)
        (output / COSTS).write_text(content, encoding="utf-8")
    rows = [report.row(one) for one in told.results]
    (output / TABLE).write_text(report.table(rows), encoding="utf-8")
    no_figure = harmless(figure.draw)(told.results, told.title, output / FIGURE)
    if no_figure is None:
        no_figure = "it could not be drawn"
    if no_figure:
        (output / FIGURE).unlink(missing_ok=True)
    return no_figure


def _print(
    told: _Told, output: Path, overrides: Overrides, no_figure: str, *, as_json: bool
) -> None:
    lines = [*report.screen(told.results)]
    for one, record in told.failed:
        lines.append(f"{'failed':<{WIDTH}}{one.label}: {record['failed']} (its log: {one.folder / LOG})")  # fmt: skip
        lines += [f"{'':<{WIDTH}}  | {line[:200]}" for line in record["last_lines"]]
    lines += [f"{'left out':<{WIDTH}}{one.label}: {why}" for one, why in told.left_out]
    lines += report.advice(told.ways, told.known, overrides, output / COSTS)
    files = TABLE if no_figure else f"{TABLE}, {FIGURE}"
    lines.append(f"{'files':<{WIDTH}}{files} in {output}{f'; no figure: {no_figure}' if no_figure else ''}")  # fmt: skip
    say_lines(lines)
    if as_json:
        rows = [report.row(one) for one in told.results]
        failed = [{"run": one.label, "reason": record["failed"], "log": str(one.folder / LOG)} for one, record in told.failed]  # fmt: skip
        left_out = [{"run": one.label, "reason": why} for one, why in told.left_out]
        print(json.dumps({"format": 1, "settings": rows, "failed": failed, "left_out": left_out}, indent=1))  # fmt: skip


def _results(settings: Sequence[Setting], timed: Sequence[Measured]) -> list[Result]:
    by_label = {
        setting.label: [one for one in timed if one.planned.setting is setting]
        for setting in settings
    }
    return [
        result(
            setting,
            by_label[setting.label],
            {one.planned.block: one for one in by_label.get(setting.baseline, ())},
        )
        for setting in settings
    ]

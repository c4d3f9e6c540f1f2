"""What is missing in the options of `decide`, or too much: told all at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import click

from ckptbench.cli.options import Options
from ckptbench.cli.values import BLOCKING, Seen

RATES = ("mtbf", "gpu_mtbf", "rate", "log", "failures")
"""The options that say how often failures come."""
CHECKPOINTS = ("blocking", "asynchronous", "state", "params")
"""Those that say what a checkpoint costs."""
OF_ROOM = ("state", "params", "optimizer", "dtype", "shared_by")
"""Those that say what room a checkpoint needs."""
SIZES = ("state", "params")
"""Those that say how large it is."""
WRITING = ("bandwidth", "rank_bandwidth")
ROOM = ("disk", "memory")
"""Those that say what holds checkpoints."""
STORAGE = (*WRITING, "shared_by", "write_fixed")
"""Those that say how the state is written."""
TABLES = ("study", "costs", "training_logs")
"""Those that name a file with costs."""
MISSING = {
    "gpus": "--gpus: how many train together",
    "step": "--step: how long one step takes",
    "restart": "--restart: how long it takes from a failure until training goes on",
}
"""What is said where an option is missing."""
OTHERWISE = {"asynchronous": "--async", "training_logs": "--training-log"}
"""Options that are not named as their field."""


def check(options: Options) -> None:
    """Raises a usage error with a line for all that is missing or does not go together."""
    if faults := [*_missing(options), *_too_much(options)]:
        raise click.UsageError("\n  ".join(["correct the options:", *faults]))


def option(name: str) -> str:
    """The option of a field of `Options`."""
    return OTHERWISE.get(name, f"--{name.replace('_', '-')}")


def missing_rate(options: Options) -> Iterator[str]:
    """A line if no option says how often failures come. For a training log it is printed with what the log lacks."""
    if not (_given(options, RATES) or options.is_limit_alone):
        yield f"{' or '.join(map(option, RATES))}: how often failures come"


def too_many_shares(options: Options, gpus: int) -> Iterator[str]:
    """A line if more GPUs hold parts of the state than train."""
    if options.shared_by is not None and options.shared_by > gpus:
        yield f"--shared-by is {options.shared_by:,}: use at most the {gpus:,} of --gpus"


def _missing(options: Options) -> Iterator[str]:
    if not options.training_logs:
        yield from missing_rate(options)
    if options.is_of_tables:
        return
    hints = {"gpus": options.gpus_hint}
    yield from (
        words + hints.get(name, "")
        for name, words in MISSING.items()
        if getattr(options, name) is None
    )
    if options.size is None and (given := _given(options, ROOM)):
        yield f"{' and '.join(given)}: give --state 98GB or --params 7B too: how large a checkpoint is"
    if not _given(options, (*CHECKPOINTS, *STORAGE)):
        yield "--blocking or --async, or --state and --bandwidth: what a checkpoint costs; or --study or --costs, which say all of it, or --training-log"


def _too_much(options: Options) -> Iterator[str]:
    yield from _too_many_rates(options)
    yield from _too_many_tables(options)
    yield from _too_much_storage(options)
    names = [each.name for each in options.checkpoints]
    counts = Counter([*names, BLOCKING] if options.is_of_storage else names)
    for name in (name for name, number in counts.items() if number > 1):
        yield f"{name}: {counts[name]} strategies have this name: give each its own, as in sharded=20s"


def _too_many_rates(options: Options) -> Iterator[str]:
    if len(rates := _given(options, RATES)) > 1:
        yield f"{' and '.join(rates)}: give one of them, as each says how often failures come"
    if isinstance(options.failures, Seen):
        if options.days is not None:
            yield "--failures and --days: leave out --days, as --failures says the time too"
    elif (options.failures is None) != (options.days is None):
        yield "--failures and --days: give both, as in --failures 3 --days 7"
    if options.count and (options.log is None or options.log.suffix == ".yaml"):
        yield "--count: give --log JOBS too, a table of sacct; in a YAML file, write the states into `states`"
    yield from _wrong_warning(options)
    if options.limit is not None and options.count and "TIMEOUT" in options.count:
        yield "--count TIMEOUT and --limit: give one of them, as each counts the ends at the time limit"


def _wrong_warning(options: Options) -> Iterator[str]:
    if options.announced is not None and options.warning is None:
        yield "--announced: give --warning too, the time from the warning to the failure, as in --warning 2min"
    if options.warning is None or options.announced is not None:
        return
    counts = options.count or []
    if "PREEMPTED" in counts and "TIMEOUT" in counts:
        yield "--warning: count time limits by --limit in place of --count TIMEOUT, or say with --announced which part of the failures is announced"
    elif "PREEMPTED" not in counts and (options.log is None or options.log.suffix != ".yaml"):
        yield "--warning: say with --announced which part of the failures it comes before, as in --announced 80%, or count preemptions: --log JOBS --count PREEMPTED"


def _too_many_tables(options: Options) -> Iterator[str]:
    if len(tables := _given(options, TABLES)) > 1:
        yield f"{' and '.join(tables)}: give one of them, as each says what checkpoints cost"
    if options.log_pattern and not options.training_logs:
        yield "--log-pattern: give --training-log too, the log that it reads"
    if len({*options.training_logs}) < len(options.training_logs):
        yield "--training-log: one file is given twice: give each once"
    is_whole = options.study is not None or options.costs is not None
    for_room = OF_ROOM if options.is_of_room else ()
    of_costs = [name for name in (*CHECKPOINTS, *STORAGE) if name not in for_room]
    if is_whole and (given := _given(options, of_costs)):
        yield f"{' and '.join(given)}: leave out what --study or --costs says too"


def _too_much_storage(options: Options) -> Iterator[str]:
    if options.gpus is not None:
        yield from too_many_shares(options, options.gpus)
    if len(sizes := _given(options, SIZES)) > 1:
        yield f"{' and '.join(sizes)}: give one of them, as each says how large a checkpoint is"
    if options.params is None and (given := _given(options, ("optimizer", "dtype"))):
        yield f"{' and '.join(given)}: give --params too, the number of parameters"
    names = [each for each in STORAGE if not (options.is_of_room and each == "shared_by")]
    if options.size is None and (given := _given(options, names)):
        yield f"{' and '.join(given)}: give --state too, as they say how it is written"
    is_written = not options.is_of_room or not (options.checkpoints or options.is_of_tables)
    if options.size is not None and is_written and not _given(options, WRITING):
        size = " and ".join(_given(options, SIZES))
        yield f"{size}: give {' or '.join(map(option, WRITING))} too, which say how fast it is written"
    for_room = OF_ROOM if options.disk is not None or options.memory is not None else ()
    given = _given(options, [each for each in (*SIZES, *STORAGE) if each not in for_room])
    if options.size is not None and given and not _uses_storage(options):
        yield f"{' and '.join(given)}: leave out what --blocking says too, or leave out --blocking"
    for each in options.checkpoints:
        if each.then_s is None and (options.size is None or options.is_of_room):
            yield f"--async ({each.name}): add how much later it is durable, as in 3s+90s, or give --state and --bandwidth"


def _uses_storage(options: Options) -> bool:
    """Whether a time follows from the state and how it is written."""
    return options.is_of_storage or any(each.then_s is None for each in options.checkpoints)


def _given(options: Options, names: Sequence[str]) -> list[str]:
    return [option(name) for name in names if getattr(options, name) not in (None, ())]

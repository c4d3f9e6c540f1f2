"""How often failures come: published rates, the user's own number, and the user's own log, all in GPU-hours.

A rate is given as the mean number of **GPU-hours between two failures**: the hours between failures of a system, times its GPUs. It is taken
to be the same at any number of GPUs, so N of them fail N times as often as one; docs/failure-rates.md says how well that holds. Only preemptions and time
limits of a log come as often whatever the GPUs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from ckptbench.analysis.cost.statistics import HALF_NORMAL, LEVEL, UNKNOWN, Interval, student
from ckptbench.common.errors import ConfigError
from ckptbench.decide.exposure import FailureCount
from ckptbench.decide.failure_file import FailureFile
from ckptbench.decide.failure_files import read_failure_file, read_failure_files
from ckptbench.decide.units import HOURS_PER_DAY, SECONDS_PER_HOUR
from ckptbench.matrix.shown import show

OWN = "own"
"""The source of a rate that nobody has published."""
ELSEWHERE = 0.94
"""Standard deviation of the logarithm of published rates of jobs: of Llama 3, OPT-175B, and three of Kokolis et al. (docs/failure-rates.md)."""
RULE_OF_THREE = 3.0
"""Of no failure in T: with 95 % one comes in T / 3 or later, as e^-3 is 0.05 (Hanley and Lippman-Hand 1983, "If nothing goes wrong, is everything all right?")."""
TAIL = (1 - LEVEL) / 2
FEWEST_WINDOWS, MOST_WINDOWS, FAILURES_A_WINDOW = 4, 6, 25
"""Equal windows of a log, in which failures are counted: long ones, so that a cluster of failures lies in one. `tests/unit/test_failure_logs.py` counts how
often the interval then holds the truth."""
FEW, CLUSTERED = 8, 3.0
"""Fewer failures than two a window say nothing of clusters by their times, unless they lie so unevenly in the windows."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FailureRate:
    """How often failures come. Times between them are taken to be exponential."""

    name: str
    """The name of its file, without the ending."""
    file: FailureFile
    """What the user or a publication says of it."""
    mean_gpu_hours: float
    """Where no failure was seen, as short as it may be."""
    lo: float = math.nan
    """Lower end of the 95 % interval of the mean on the reader's machine; NaN where nothing shows how far it may be off."""
    hi: float = math.nan
    """Infinite where no failure was seen."""
    seen: Interval = UNKNOWN
    """The 95 % interval of the mean where the failures were counted, without what other machines differ by."""
    failures: int | None = None
    """That were counted; None where only a mean is known."""
    log: FailureCount | None = None
    announced: float | None = None
    """The part of all failures that are preemptions, where a log counts these. None where nothing says it."""

    def mean_hours(self, gpus: int) -> float:
        """Mean hours between failures of this many GPUs."""
        return self.at(gpus).mean_gpu_hours / gpus

    def at(self, gpus: int) -> FailureRate:
        """The rate of a job on so many GPUs, where ends of a log do not grow with them; and a sentence on it. Any other is the same at all."""
        if self.log is None or self.log.of_jobs is None:
            return self
        ends = self.log.of_jobs
        announced = ends.announced(gpus)
        factor = ends.factor(gpus)
        said = (ends.said(gpus),) if factor != 1 else ()
        return replace(
            self,
            mean_gpu_hours=self.mean_gpu_hours * factor,
            lo=self.lo * factor,
            hi=self.hi * factor,
            seen=Interval(self.seen.lo * factor, self.seen.hi * factor),
            log=replace(self.log, doubts=(*said, *self.log.doubts), of_jobs=None),
            announced=announced,
        )

    @property
    def source(self) -> str:
        """Who published it, or OWN."""
        return OWN if self.file.source is None else self.file.source.short

    @property
    def is_bound(self) -> bool:
        """Whether no failure was seen, so that the rate is at most this."""
        return self.failures == 0

    @property
    def is_published(self) -> bool:
        """Whether it is of another machine than the reader's."""
        return self.source != OWN

    @property
    def is_own_count(self) -> bool:
        """Whether failures of the reader's own machine were counted."""
        return self.failures is not None and not self.is_published

    def said(self) -> Iterator[str]:
        """Sentences on how sure the rate is."""
        if self.log is not None:
            found = self.log.found
            merged = found - self.log.failures
            yield (
                f"{found:,} failure{'s' * (found != 1)} in {self.log.risk_gpu_hours:,.0f} GPU-hours"
                + (
                    f"; {merged:,} within one restart of an earlier one, counted as one with it"
                    if merged
                    else ""
                )
            )
            yield from self.log.doubts
            if self.log.is_of_failures_alone:
                yield "every job of the table failed: if other jobs ran, add them, as failures are then rarer"
        if self.is_bound:
            yield "no failure was seen: the rate is at most one per third of the time"
        elif self.failures is not None and self.failures < FEW:
            fewest, most = (self.mean_gpu_hours / end for end in (self.seen.hi, self.seen.lo))
            yield f"only {self.failures} failure{'s' * (self.failures != 1)}: the true rate may be {fewest:.2g} to {most:.2g} times this (brackets: 95 %)"
        if self.is_published:
            yield "measured elsewhere: your rate may be a sixth of it or six times as high"


def read_rates(folder: Path) -> list[FailureRate]:
    """The rates of all files `*.yaml` in the folder, by name.

    Raises ConfigError or DataError with the faults of all files: the place of each, and what to do.
    """
    files = read_failure_files(folder)
    return [_rate_of(path.stem, *read) for path, read in files.items()]


def published() -> Path:
    """The folder of the published rates: in an installed package, or in a clone."""
    own = Path(__file__).parent / "failures"
    return own if own.is_dir() else Path(__file__).parents[3] / "config" / "failures"


def read_rate(
    path_or_name: Path | str, *, restart_s: float | None = None, with_limit: bool = False
) -> FailureRate:
    """The rate of a file, or a published one by its name. The options are those of `read_failure_file`. Raises ConfigError or DataError with the file, the place in it and what to do."""
    path = Path(path_or_name)
    if path.suffix != ".yaml":
        files = {_letters(each.stem): each for each in sorted(published().glob("*.yaml"))}
        name = _letters(str(path_or_name))
        if name not in files:
            names = [each.stem for each in files.values()]
            near = "".join(
                f"; did you mean {files[each].stem}?" for each in get_close_matches(name, files, 1)
            )
            raise ConfigError(
                f"rate is {show(str(path_or_name))}: use a file NAME.yaml or one of {', '.join(names)}; a log goes to --log{near}"
            )
        path = files[name]
    read = read_failure_file(path, restart_s=restart_s, with_limit=with_limit)
    return _rate_of(path.stem, *read)


def _letters(name: str) -> str:
    """`llama3` of `Llama 3`."""
    return re.sub(r"[\W_]", "", name.lower())


def read_log(path: Path, *, with_limit: bool = False, **options: object) -> FailureRate:
    """The rate of a log that no YAML file describes: sacct's table, or a list of times. `options` are fields of `FailureFile`.

    `with_limit`: the ends at the time limit are counted by it.

    Raises DataError with the first line that is wrong.
    """
    from ckptbench.decide.failure_log import count_failures  # imports pandas

    words = {"title": path.name, "counts": "failures in a log", **options}
    file = FailureFile.model_construct(None, **words)
    return _rate_of(path.stem, file, count_failures(path, file, with_limit=with_limit))


def _rate_of(name: str, file: FailureFile, counted: FailureCount | None) -> FailureRate:
    rate = FailureRate(name=name, file=file, mean_gpu_hours=math.nan)
    if counted is not None:
        return _elsewhere(_counted(rate, counted.failures, counted.risk_gpu_hours, counted))
    match file:
        case FailureFile(failures=int(failures), days=float(days), gpus=int(gpus)):
            return _elsewhere(_counted(rate, failures, days * HOURS_PER_DAY * gpus))
        case FailureFile(mean_hours=float(hours), gpus=int(gpus)):
            return _elsewhere(replace(rate, mean_gpu_hours=hours * gpus))
        case FailureFile(mean_gpu_hours=float(hours)):
            return _elsewhere(replace(rate, mean_gpu_hours=hours))
    raise AssertionError(f"{name}: its fields were checked")


def rate_of_job(mtbf_s: float, gpus: int) -> FailureRate:
    """The rate that a user says: seconds between two failures of a job on so many GPUs. It has no interval."""
    mean = mtbf_s / SECONDS_PER_HOUR * gpus
    file = FailureFile.model_construct(title="your job", counts="failures of your job", gpus=gpus)
    return FailureRate(name="job", file=file, mean_gpu_hours=mean)


def rate_of_count(failures: int, days: float, gpus: int) -> FailureRate:
    """The rate of failures that a user has counted in so many days, of a job on so many GPUs."""
    title = f"your count of {failures} in {days:g} days"
    words = {
        "title": title,
        "counts": "failures of your job",
        "failures": failures,
        "days": float(days),
    }
    return _rate_of("counted", FailureFile.model_construct(None, gpus=gpus, **words), None)


def exact_interval(failures: int, exposure: float) -> Interval:
    """The interval of the mean time between failures, in the unit of `exposure`, where `failures` came at a constant rate.

    Their number follows Poisson's distribution. Its exact interval, by quantiles of chi-square with 2n and 2n + 2 degrees of freedom: Garwood,
    *Fiducial limits for the Poisson distribution*, Biometrika 28, 1936. It holds for few failures too: one is enough.
    """
    from scipy.special import gammaincinv

    return Interval(
        exposure / float(gammaincinv(failures + 1, 1 - TAIL)),
        exposure / float(gammaincinv(failures, TAIL)),
    )


def clustered_interval(log: FailureCount) -> Interval:
    """The interval of the mean GPU-hours between the failures of a log, which may come in clusters.

    On the logarithm it goes z √(φ / n) to either side. The overdispersion φ is how much more than a Poisson number the counts in equal windows differ
    (Pearson's χ² ÷ its degrees of freedom; McCullagh and Nelder, *Generalized Linear Models*, 1989, section 6.2.3), and at least 1. As few windows say little
    about it, z is the quantile of Student's distribution, not 1.96.
    """
    mean = log.risk_gpu_hours / log.failures
    factor = math.exp(_student(log.failures) * math.sqrt(overdispersion(log) / log.failures))
    return Interval(mean / factor, mean * factor)


def overdispersion(log: FailureCount) -> float:
    """φ of the log's failures; 1 where they come at a constant rate. At least 1."""
    windows = _windows(log.failures)
    counts, _ = np.histogram(log.at_gpu_hours, windows, (0.0, log.watched_gpu_hours))
    expected = log.failures / windows
    return max(1.0, float(((counts - expected) ** 2).sum() / expected / (windows - 1)))


def _windows(failures: int) -> int:
    return min(MOST_WINDOWS, max(FEWEST_WINDOWS, failures // FAILURES_A_WINDOW))


def _student(failures: int) -> float:
    return student(LEVEL, _windows(failures) - 1)


def _counted(rate: FailureRate, failures: int, exposure: float, log: FailureCount | None = None) -> FailureRate:  # fmt: skip
    mean = exposure / (failures or RULE_OF_THREE)
    if failures == 0:
        seen = Interval(mean, math.inf)
    elif log is None or (failures < FEW and overdispersion(log) <= CLUSTERED):
        seen = exact_interval(failures, exposure)
    else:
        seen = clustered_interval(log)
    return replace(rate, mean_gpu_hours=mean, lo=seen.lo, hi=seen.hi, seen=seen, failures=failures, log=log)  # fmt: skip


def _elsewhere(rate: FailureRate) -> FailureRate:
    """A published rate, with the interval that it leaves for another machine; any other as it is."""
    if not rate.is_published or rate.is_bound:
        return rate
    mean, other = rate.mean_gpu_hours, HALF_NORMAL * ELSEWHERE
    lo, hi = (0.0 if math.isnan(end) else math.log(end / mean) for end in rate.seen)
    return replace(
        rate,
        lo=mean * math.exp(-math.hypot(lo, other)),
        hi=mean * math.exp(math.hypot(hi, other)),
    )

"""The values of options, as people have them: `2h`, `1-02:00:00` and `14:00:00` of Slurm, `1.2s/it` of a progress bar, `3/week`, `sharded=20s`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ckptbench.common.errors import ConfigError
from ckptbench.decide.units import (
    HOURS_PER_DAY,
    SECONDS_PER_DAY,
    SECONDS_PER_HOUR,
    SECONDS_PER_MINUTE,
)
from ckptbench.matrix.shown import show
from ckptbench.report.answer.quantities import (
    MOST,
    NUMBER,
    PRICE,
    Every,
    read_every,
    read_time,
)

BLOCKING, ASYNCHRONOUS = "blocking", "async"
"""Names of strategies without one."""
PLUS = re.compile(r"(?<!\d[eE])\+")
"""Between two times, and not that of a number such as 1e+3."""
CLOCK = re.compile(r"\s*(?:(\d{1,6})-(\d{1,2})|(\d{1,9})(?=:\d\d:))(?::(\d\d))?(?::(\d\d))?\s*")
"""Slurm's times: days-hours, days-hours:minutes, days-hours:minutes:seconds and hours:minutes:seconds."""
TWO_PARTS = re.compile(r"\s*(\d+):(\d\d)\s*")
"""Minutes and seconds for Slurm, hours and minutes for most people."""
MOST_FAILURES = 100_000
UPDATE = r"(?:it|iter|iteration|step)s?"
A_STEP = re.compile(rf"\s*({NUMBER}\s*[a-z]+)\s*/\s*{UPDATE}\s*", re.IGNORECASE)
STEPS_IN = re.compile(rf"\s*({NUMBER})\s*{UPDATE}\s*/\s*([a-z]+)\s*", re.IGNORECASE)
COUNTED = re.compile(
    r"\s*(\d{1,6})(?:\s*(?:failures?|times|x))?\s*(?:/|\b(?:per|an?|in)\b)\s*(.+)", re.IGNORECASE
)
RANGE = re.compile(
    rf"\s*(?:[^=]*=)?\s*({NUMBER})\s*([a-z]*)\s*(±|\+/?-|-|\.\.)\s*({NUMBER})\s*([a-z]+)\s*",
    re.IGNORECASE,
)
COMMA = re.compile(r"(\d+),(\d{1,2}|\d{4,})(\s*[A-Za-z][A-Za-z/]*)")
AN_HOUR = re.compile(r"\s*(?:/|\bper\b)\s*(?:gpu[\s-]?)?h(?:(?:ou)?rs?)?\s*$", re.IGNORECASE)
"""Behind a price: of a GPU-hour it is anyway."""
PARTLY = re.compile(rf"\s*{NUMBER}\s*/\s*[a-z]+\s*", re.IGNORECASE)
ZERO = re.compile(r"(?:[^=]*=)?0+(?:\.0*)?\s*[a-z]+(?:\s*\+.*)?", re.IGNORECASE)
BITS = re.compile(rf"\s*({NUMBER})\s*([KMGT])b(?:/s|ps)\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What one checkpoint of a strategy costs, as an option says it."""

    name: str
    stall_s: float
    """Training is blocked."""
    then_s: float | None = None
    """From then on until the checkpoint is durable. None: as long as `--state` and `--bandwidth` say."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Failures that were counted, in so many days."""

    failures: int
    days: float


@dataclass(frozen=True, slots=True)
class Price:
    """Of a GPU-hour."""

    amount: float
    before: str = ""
    """The currency where it stands before the number, as it was written."""
    after: str = ""

    def __str__(self) -> str:
        return f"{self.before}{self.amount:,.6g} {self.after}".rstrip()

    def of(self, gpu_hours: float) -> str:
        """What they cost, to two digits and in the same currency: `$1,200`, `1,200 EUR`."""
        sum_ = float(f"{self.amount * gpu_hours:.2g}")
        return f"{self.before}{sum_:,.{0 if sum_ >= 10 else 2}f} {self.after}".rstrip()


def hint(text: str) -> str:
    """What to write in place of a text that people write and that means two things. Else empty."""
    text = text.strip()
    if match := COMMA.fullmatch(text):
        return (
            f"{show(text)}: a comma stands between thousands: write {match[1]}.{match[2]}{match[3]}"
        )
    if match := RANGE.fullmatch(text):
        one, unit, sign, other, last = match.groups()
        middle = (float(one) + float(other)) / 2 if sign in ("-", "..") else float(one)
        return f"{show(text)} is a range: write its middle, as {middle:g}{unit or last}; a file of costs (--costs) takes the ends too"
    if match := TWO_PARTS.fullmatch(text):
        return f"{show(text)} may be hours or minutes: write {match[1]}h{match[2]}min or {match[1]}min{match[2]}s"
    if match := BITS.fullmatch(text):
        unit = match[2].upper()
        return f"{show(text)} may mean bits or bytes: write {match[1]}{unit}bit/s or {match[1]}{unit}B/s"
    if ZERO.fullmatch(text):
        return f"{show(text)}: 0 cannot be used: write the shortest likely value, as 1ms"
    return ""


def read_clock(text: str) -> float:
    """Seconds: a number with its unit, or a time as Slurm writes it."""
    if match := CLOCK.fullmatch(text):
        days, hours, more_hours, minutes, seconds = (int(part or 0) for part in match.groups())
        hours = days * HOURS_PER_DAY + hours + more_hours
        whole = hours * SECONDS_PER_HOUR + minutes * SECONDS_PER_MINUTE + seconds
        return whole or read_time("0s")
    return read_time(text)


def read_mtbf(text: str) -> float | Seen:
    """Seconds between failures; or a count of them, as `3/week` or `3 in 7 days`."""
    match = COUNTED.fullmatch(text)
    if match is None and PARTLY.fullmatch(text):
        raise ConfigError(f"{show(text)}: write a whole number of failures, as 3/week, or a time, as 14h")  # fmt: skip
    if match is None:
        return read_clock(text)
    often = match[2] if re.match(r"[\d.]", match[2]) else f"1 {match[2]}"
    return Seen(int(match[1]), read_clock(often) / SECONDS_PER_DAY)


def read_failures(text: str) -> int | Seen:
    """A count of them, which may be 0; or one in a time, as `4/week`."""
    if COUNTED.fullmatch(text) and isinstance(seen := read_mtbf(text), Seen):
        return seen
    if not re.fullmatch(r"\s*\d{1,6}\s*", text) or int(text) > MOST_FAILURES:
        raise ConfigError(f"{show(text)} is not a number of failures: use a whole number from 0 to {MOST_FAILURES:,}")  # fmt: skip
    return int(text)


def read_step(text: str) -> float:
    """Seconds of a step; also `1.2 s/it` or `0.83it/s`, as progress bars say."""
    if match := A_STEP.fullmatch(text):
        return read_time(match[1])
    if match := STEPS_IN.fullmatch(text):
        seconds = read_time(f"1 {match[2]}")
        number = float(match[1].replace(",", ""))
        return read_time(f"{seconds / number:.12g} s" if number else "0s")
    return read_clock(text)


def read_steps_or_time(text: str) -> Every:
    """How often to save."""
    if CLOCK.fullmatch(text):
        return Every(seconds=read_clock(text))
    if re.fullmatch(rf"\s*{NUMBER}\s*", text):
        raise ConfigError(
            f'{show(text)} has no unit: write "{text.strip()} steps", or a time, as 2h'
        )
    return read_every(text)


def read_price(text: str) -> Price:
    """Money for a GPU-hour: `2.5`, `$2.5`, `2.5 EUR`."""
    match = PRICE.fullmatch(AN_HOUR.sub("", text))
    if match is None or (match[1] and match[3]) or not 0 < float(match[2].replace(",", "")) <= MOST:
        raise ConfigError(f"{show(text)} is not a price: write a number above 0, with a currency or without, as 2.5, $2.5 or 2.5 EUR")  # fmt: skip
    return Price(float(match[2].replace(",", "")), match[1], match[3])


def read_part(text: str) -> float:
    """A part of a whole, above 0: `80%`, `0.8`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%?)\s*", text)
    part = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0 < part <= 1:
        raise ConfigError(f"{show(text)} is not a part: write it as 80% or 0.8")
    return part


def read_days(text: str) -> float:
    """Days: `7`, or another time with its unit, as `2 weeks`."""
    return read_clock(text if re.search("[A-Za-z:]", text) else f"{text} days") / SECONDS_PER_DAY


def read_states(text: str) -> list[str]:
    """Slurm's states, as `PREEMPTED,TIMEOUT`."""
    from ckptbench.decide.exposure import ENDS

    states = [state.strip().upper() for state in text.split(",")]
    if unknown := [state for state in states if state not in ENDS]:
        raise ConfigError(f"{show(unknown[0])} is not the state of an ended job: use {', '.join(ENDS)}")  # fmt: skip
    return states


def read_blocking(text: str) -> Checkpoint:
    name, time = _named(text, BLOCKING)
    return Checkpoint(name=name, stall_s=read_clock(time), then_s=0.0)


def read_asynchronous(text: str) -> Checkpoint:
    name, times = _named(text, ASYNCHRONOUS)
    if "," in times and "+" not in times:
        raise ConfigError(f"{show(text)}: write STOP+WRITE, as 3s+90s: how long training stops, and how much later the checkpoint is safe")  # fmt: skip
    stall, *then = PLUS.split(times, maxsplit=1)
    return Checkpoint(
        name=name, stall_s=read_clock(stall), then_s=read_clock(then[0]) if then else None
    )


def _named(text: str, usual: str) -> tuple[str, str]:
    """The name, and what stands behind it. Without a name the usual one."""
    name, given, rest = text.rpartition("=")
    if not given:
        return usual, text
    if not name.strip() or not name.isprintable():
        raise ConfigError(f"{show(text)}: write a name before =, as in sharded=20s")
    return " ".join(name.split()), rest

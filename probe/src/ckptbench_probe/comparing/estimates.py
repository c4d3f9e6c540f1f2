"""What the runs of one setting say of it: means over blocks, with 95 % intervals.

A run is one observation: whatever slows it down does so in all of its steps and saves. Two estimates of the overhead are made. `paired` is how much longer
a run took than the baseline of its block. `in_run` is what stalls and slowdown took of the run itself; noise between two runs does not reach it, so it is the
one to quote, unless the two intervals do not overlap.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean, median

from ckptbench_probe.comparing.runs import Planned
from ckptbench_probe.comparing.settings import Setting
from ckptbench_probe.measures import (
    FIRST_GAPS,
    NS,
    Checkpoint,
    Measures,
    attempts_of,
    measure,
    quiet_gaps_s,
)
from ckptbench_probe.reading import ProbedProcess, read
from ckptbench_probe.statistics import Estimate, estimate
from ckptbench_probe.words import counted

WARMUP_STEPS = FIRST_GAPS + 1
"""Steps at the start that no time is taken from, as so many gaps between updates are left out."""
PAIRED, IN_RUN = "paired", "in_run"
"""As in `ckptbench.analysis.cost.estimates`, from simpler intervals: a study borrows spread from its other setups."""


@dataclass(frozen=True)
class SaveCost:
    """Of one save, in seconds of its run."""

    stall_s: float
    inside_s: float
    """The gaps that it touches, without the stall."""
    inside_steps: float
    """Steps that would have taken as long without it, at the pace of quiet gaps."""
    first: bool
    slowdown_known: bool
    finished_s: float | None


@dataclass(frozen=True)
class Measured:
    """A run that has ended well."""

    planned: Planned
    measures: Measures
    ranks: tuple[ProbedProcess, ...]
    """Of its first start."""

    @classmethod
    def of(cls, planned: Planned) -> Measured:
        run = read(planned.folder)
        starts = attempts_of(run)
        return cls(planned, measure(run), tuple(starts[0]) if starts else ())

    @property
    def checkpoints(self) -> list[Checkpoint]:
        return [one for one in self.measures.checkpoints if not one.failed]

    @property
    def script(self) -> str:
        return os.path.basename((self.ranks[0].command or ("",))[0]) or "my training"

    @cached_property
    def untimed(self) -> str:
        """Why its times do not count. Empty: they do."""
        if not self.ranks:
            return f"its traces are missing: remove {self.planned.folder} to make it again"
        if self.measures.attempts > 1:
            return "its training was started more than once"
        if self.measures.killed:
            return "a rank was killed"
        if self.measures.updates <= WARMUP_STEPS:
            return f"it has {counted(self.measures.updates, 'step')}, and the first {WARMUP_STEPS} do not count"
        if not self.quiet_s:
            return "every step overlapped a save: save less often"
        return ""

    @cached_property
    def quiet_s(self) -> list[float]:
        return quiet_gaps_s(self.ranks[0])

    @property
    def period_s(self) -> float:
        return fmean(self.quiet_s)

    @cached_property
    def time_s(self) -> float:
        """From the end of the warm-up to the last update, and the saves after it that training waited for; of the slowest rank."""
        return max(map(_length_s, self.ranks))

    def save_costs(self, baseline: Measured | None) -> list[SaveCost]:
        """Of each save after the warm-up. What the baseline takes longer in the same gaps is no cost of a save: an evaluation, say."""
        longer_s = self._longer_s(baseline)
        return [
            self._cost(one, longer_s, first=place == 0)
            for place, one in enumerate(self.checkpoints)
            if one.updates >= WARMUP_STEPS
        ]

    def _longer_s(self, baseline: Measured | None) -> list[float]:
        """By how much each gap of the baseline is longer than its median, at the pace of this run. Zeros where it saved, or made other steps."""
        updates = self.measures.updates
        if baseline is None or baseline.checkpoints or baseline.measures.updates != updates:
            return [0.0] * updates
        at_ns = baseline.ranks[0].updates_ns
        usual_s, own_s = median(baseline.quiet_s), median(self.quiet_s)
        gaps = zip(at_ns, at_ns[1:])
        return [((after - before) / NS / usual_s - 1) * own_s for before, after in gaps]

    def _cost(self, one: Checkpoint, longer_s: Sequence[float], *, first: bool) -> SaveCost:
        if one.slowdown_s is None:
            return SaveCost(one.stall_s, 0.0, 0.0, first, False, one.finished_s)
        own_s = sum(longer_s[one.updates - 1 : one.updates - 1 + one.gaps])
        usual_s = one.gaps * self.period_s + own_s
        inside_s = one.slowdown_s - own_s + usual_s
        return SaveCost(one.stall_s, inside_s, usual_s / self.period_s, first, True, one.finished_s)

    def lost_s(self, costs: Sequence[SaveCost]) -> float:
        """That stalls and slowdown took."""
        return sum(one.stall_s + one.inside_s - one.inside_steps * self.period_s for one in costs)

    def usual_s(self, costs: Sequence[SaveCost]) -> float:
        """What as many steps take without saves."""
        return self.period_s * (len(self.quiet_s) + sum(one.inside_steps for one in costs))


@dataclass(frozen=True)
class Result:
    """Of one setting, or of a baseline, which has no cost."""

    setting: Setting
    runs: tuple[Measured, ...]
    """Those whose times count."""
    step: Estimate | None
    """Seconds without a save beside it."""
    costed_saves: int = 0
    """Over all runs those after the warm-up that stall and finish are of: fewer than `saved`."""
    stall: Estimate | None = None
    slowdown: Estimate | None = None
    finished: Estimate | None = None
    paired: Estimate | None = None
    in_run: Estimate | None = None
    added_step: Estimate | None = None
    """Seconds by which a step is longer on average than without saves."""
    quoted: str = ""
    notes: tuple[str, ...] = field(default=())

    @property
    def overhead(self) -> Estimate | None:
        return {PAIRED: self.paired, IN_RUN: self.in_run}.get(self.quoted)

    @property
    def saved(self) -> list[Checkpoint]:
        return [one for run in self.runs for one in run.checkpoints]

    @property
    def interval_steps(self) -> int:
        """Between two saves, as measured; 0 where nothing was saved."""
        found = [run.measures.interval_steps for run in self.runs if run.measures.interval_steps]
        return max(1, round(median(found))) if found else 0


def result(setting: Setting, runs: Sequence[Measured], baselines: Mapping[int, Measured]) -> Result:
    """`runs`: those of the setting that count. `baselines`: those of its baseline, by block."""
    own = tuple(runs)
    step = estimate([run.period_s for run in own])
    if not setting.baseline:
        saved = max((len(run.checkpoints) for run in own), default=0)
        note = f"the baseline saved too (up to {saved} times): the paired overhead lacks that cost, and pauses at saves count as part of them"
        return Result(setting, own, step, notes=(note,) if saved else ())
    beside = [(run, baselines[run.planned.block]) for run in own if run.planned.block in baselines]
    pairs = [(run, other) for run, other in beside if run.measures.updates == other.measures.updates]  # fmt: skip
    paired = estimate([run.time_s for run, _ in pairs], [other.time_s for _, other in pairs])
    if paired is not None:
        paired = paired.scaled(1.0, minus=1.0)
    costs = [(run, run.save_costs(baselines.get(run.planned.block))) for run in own]
    in_run = None
    if any(found for _, found in costs):
        in_run = estimate(
            [run.lost_s(found) for run, found in costs],
            [run.usual_s(found) for run, found in costs],
        )
    used = _steady_or_all([found for _, found in costs if found])
    differ = paired is not None and in_run is not None and paired.is_apart_from(in_run)
    quoted = PAIRED if differ or (in_run is None and paired) else IN_RUN
    if not own or not any(run.checkpoints for run in own):
        quoted = ""
    quote = paired if quoted == PAIRED else in_run if quoted else None
    usual = fmean([other.period_s for _, other in pairs]) if pairs else step.mean if step else 0.0
    ends = [[one.finished_s for one in found if one.finished_s is not None] for found in used]
    return Result(
        setting=setting,
        runs=own,
        step=step,
        costed_saves=sum(map(len, used)),
        stall=estimate([fmean([one.stall_s for one in found]) for found in used]),
        slowdown=_slowdown(costs),
        finished=estimate([fmean(found) for found in ends if found]),
        paired=paired,
        in_run=in_run,
        added_step=quote.scaled(usual) if quote else None,
        quoted=quoted,
        notes=tuple(_notes(own, beside, pairs, paired, in_run)),
    )


def _notes(
    own: Sequence[Measured],
    beside: Sequence[tuple[Measured, Measured]],
    pairs: Sequence[tuple[Measured, Measured]],
    paired: Estimate | None,
    in_run: Estimate | None,
) -> list[str]:
    found = []
    if own and not any(run.checkpoints for run in own):
        found.append("the probe saw no save, so its cost is unknown")
    if len(beside) < len(own):
        found.append(f"{len(own) - len(beside)} of {len(own)} runs have no baseline in their block")
    if len(pairs) < len(beside):
        run, other = next(pair for pair in beside if pair not in pairs)
        found.append(f"{len(beside) - len(pairs)} of {len(beside)} baselines made different numbers of steps than their runs ({other.measures.updates} and {run.measures.updates}): not compared")  # fmt: skip
    failed = sum(one.failed for run in own for one in run.measures.checkpoints)
    if failed:
        found.append(f"{counted(failed, 'save')} ended in an error and do not count")
    if paired and in_run and paired.is_apart_from(in_run):
        found.append(f"the two estimates disagree: {paired.mean:.1%} against the baseline, which counts, {in_run.mean:.1%} from inside the run")  # fmt: skip
    return found


def _steady_or_all(costs: Sequence[list[SaveCost]]) -> list[list[SaveCost]]:
    """Without the first save of each run, which starts helpers and allocates memory, if each run has others."""
    later = [[one for one in found if not one.first] for found in costs]
    return later if all(later) else list(costs)


def _slowdown(costs: Sequence[tuple[Measured, list[SaveCost]]]) -> Estimate | None:
    """Seconds a save. None where no step followed one. Estimated as a ratio of times, which is always above zero."""
    known = [(run, [one for one in found if one.slowdown_known]) for run, found in costs]
    told = [(run, found) for run, found in known if found]
    later = [(run, [one for one in found if not one.first]) for run, found in told]
    if later and all(found for _, found in later):
        told = later
    inside = [sum(one.inside_s for one in found) for _, found in told]
    usual = [sum(one.inside_steps for one in found) * run.period_s for run, found in told]
    if not told or min(usual) <= 0:
        return estimate([0.0] * len(told))
    ratio = estimate(inside, usual)
    assert ratio is not None
    return ratio.scaled(sum(usual) / sum(len(found) for _, found in told), minus=1.0)


def _length_s(process: ProbedProcess) -> float:
    last_ns = process.updates_ns[-1]
    waited_ns = sum(
        one.end_ns - one.start_ns
        for one in process.saves
        if one.stepping and one.start_ns >= last_ns and one.end_ns is not None
    )
    first_ns = process.updates_ns[min(FIRST_GAPS, len(process.updates_ns) - 1)]
    return (last_ns - first_ns + waited_ns) / NS

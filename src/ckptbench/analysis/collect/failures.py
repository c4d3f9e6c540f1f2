"""The table `failures`: what each failure that struck a run cost, by part.

The time of a run is cut at its strikes. From a strike until training is back at the step that it had reached, or until
the next strike, every moment belongs to one part. Where ranks go on without others, what their later steps take longer is a
part too.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ckptbench.analysis.collect.run_folder import Run
from ckptbench.analysis.tables.columns import LOST_PARTS, RUN
from ckptbench.analysis.tables.schema import Column, Table
from ckptbench.run.events import AllEnded, Begun, Chosen, Lost, Strike, Struck
from ckptbench.run.layout import LAUNCHER_TRACE, STRIKES
from ckptbench.run.strikes import recorded_strikes
from ckptbench.run.trace import Floats, Ints, whole_events

PHASES = {
    "launch": "launch_s", "meet": "launch_s", "import": "import_s",
    "join": "build_s", "data": "build_s", "build": "build_s",
    "evict": "load_s", "load": "load_s",
}  # fmt: skip
"""The part that a phase of rank 0 belongs to."""
FAILURES = Table(
    "failures",
    "One row per injected failure. The parts add up to `total_s`. Times are those of rank 0 or a surviving rank, its launcher and the fault injector.",
    ("run", "second"),
    (
        RUN,
        Column("failure", "integer", "1", "its number in the failure trace, from 0"),
        Column("kind", "text", "", "kill, hang or damage"),
        Column("victim", "text", "", "the rank or the node"),
        Column("stage", "text", "", "of the checkpoint in progress; empty if none was"),
        Column("attempt", "integer", "1", "in which it occurred, from 1"),
        Column("second", "number", "s", "since the first step of the run began"),
        Column("step", "integer", "1", "completed steps of the run at the failure"),
        Column("from_step", "count", "1", "completed steps from which training continued"),
        Column("ranks_before", "integer", "1", "training together before it"),
        Column("ranks_after", "count", "1", "training together after it"),
        *(Column(name, "number", "s", meaning) for name, meaning in LOST_PARTS.items()),
        Column("total_s", "number", "s", "from the end of the last completed work until training was back there, or until the next failure"),
    ),
)  # fmt: skip


def failures(runs: Sequence[Run]) -> pd.DataFrame:
    return FAILURES.rows(row for run in runs if run.cell.is_struck for row in _rows(run))


Span = tuple[float, float]
"""Start and end in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class _Regroup:
    """Training stood still until the ranks that go on were ready. Times are in seconds since 1970."""

    noticed: float
    agreed: float
    ready: float
    step: int
    is_loss: bool
    """False where ranks joined and none had been lost."""

    def within(self, window: Span) -> tuple[float, float]:
        """Seconds of the window until the ranks agreed, and from then until they were ready."""
        return (
            _within((self.noticed, self.agreed), window),
            _within((self.agreed, self.ready), window),
        )


@dataclass(frozen=True, slots=True)
class _History:
    """What happened in a run, in seconds since 1970, in order of time."""

    strikes: list[Strike]
    struck: dict[int, float]
    """When each failure was over, by its number."""
    launcher: list[Lost | AllEnded | Chosen]
    began: float
    ended: float
    phases: list[tuple[str, Span]]
    """Each with its part."""
    steps: Ints
    """Index of every step that was done, as the ranks that tell say, shape (n,). A step that was done again is there twice."""
    spans: Floats
    """Start and end of each, shape (n, 2)."""
    done: Floats
    """Ends of everything that was done for training: steps, saves and epochs, shape (m,)."""
    regroups: list[_Regroup]
    all_ranks: int
    world_sizes: list[tuple[float, int]]
    """How many ranks trained together, each with the time from which on they did."""
    ranks: Ints
    """How many ranks did each step, shape (n,)."""

    @classmethod
    def of(cls, run: Run) -> Self:
        journals = [*sorted(run.folder.glob(STRIKES)), run.folder / LAUNCHER_TRACE]
        events = [event for path in journals for event in whole_events(path)]
        done = [segment.steps() for segment in run.segments]
        index, start_ns, end_ns = (
            np.concatenate([getattr(steps, name) for steps in done])
            for name in ("index", "start_ns", "end_ns")
        )
        saved_ns = [at for each in run.segments for at in each.unix_ns(each.process.saved_ns)]
        trained_ns = [at for each in run.segments for at in each.unix_ns(each.process.trained_ns)]
        begun = [event.unix_ns for event in events if isinstance(event, Begun)]
        launcher = [e for e in events if isinstance(e, Lost | AllEnded | Chosen)]
        world_sizes = sorted(_world_sizes(run))
        since = [at for at, _ in world_sizes]
        return cls(
            strikes=recorded_strikes(run.folder),
            struck={e.failure: e.unix_ns / 1e9 for e in events if isinstance(e, Struck)},
            launcher=sorted(launcher, key=lambda event: event.unix_ns),
            began=min(begun) / 1e9,
            ended=max(trained_ns) / 1e9,
            phases=list(_phases(run)),
            steps=index,
            spans=np.stack([start_ns / 1e9, end_ns / 1e9], axis=1),
            done=np.sort(np.array([*end_ns, *saved_ns, *trained_ns], np.int64)) / 1e9,
            regroups=list(_regroups(run)),
            all_ranks=run.cell.ranks,
            world_sizes=world_sizes,
            ranks=np.array(
                [world_sizes[bisect.bisect(since, at) - 1][1] for at in start_ns / 1e9], np.int64
            ),
        )

    def ranks_at(self, moment: float) -> int:
        return [ranks for at, ranks in self.world_sizes if at <= moment][-1]

    def inside(self, window: Span) -> NDArray[np.bool_]:
        """Which steps lie in the window, shape (n,)."""
        mask: NDArray[np.bool_] = (self.spans[:, 0] >= window[0]) & (self.spans[:, 1] <= window[1])
        return mask

    @property
    def durations(self) -> Floats:
        """Of the steps in seconds, shape (n,)."""
        seconds: Floats = self.spans[:, 1] - self.spans[:, 0]
        return seconds


def _phases(run: Run) -> Iterator[tuple[str, Span]]:
    """The phases of the ranks that tell, each with its part. Those of a rank that joins run beside training."""
    for segment in run.segments:
        process = segment.process
        for phase in () if process.joined else process.phases:
            if phase.name in PHASES:
                start_ns, end_ns = map(process.unix_ns, (phase.start_ns, phase.end_ns))
                yield PHASES[phase.name], (start_ns / 1e9, end_ns / 1e9)


def _world_sizes(run: Run) -> Iterator[tuple[float, int]]:
    """The number of ranks that train together, whenever it changes. All do when all start, or start again."""
    yield 0.0, run.cell.ranks
    for segment in run.segments:
        process = segment.process
        if not process.joined:
            yield process.unix_ns(process.launched_ns or 0) / 1e9, run.cell.ranks
        for membership in process.memberships:
            if at_ns := segment.unix_ns([membership.monotonic_ns]):
                yield at_ns[0] / 1e9, len(membership.ranks)


def _regroups(run: Run) -> Iterator[_Regroup]:
    """Those of the ranks that tell, without those with which they joined the others."""
    ranks = set(range(run.cell.ranks))
    for segment in run.segments:
        process = segment.process
        for number, (membership, regroup) in enumerate(process.agreements):
            if regroup is None:  # the next agreement begins when this one failed
                continue
            joins = ranks < set(membership.ranks)
            ranks = set(membership.ranks)
            if not (number == 0 and process.joined):
                noticed, agreed, ready = (
                    process.unix_ns(at) / 1e9
                    for at in (regroup.noticed_ns, regroup.agreed_ns, regroup.ready_ns)
                )
                yield _Regroup(noticed, agreed, ready, regroup.step, not joins)


def _rows(run: Run) -> Iterator[dict[str, Any]]:
    history = _History.of(run)
    planned = run.manifest["failures"]
    at = [strike.unix_ns / 1e9 for strike in history.strikes]
    # Of a run whose failures would all have come after its end there is no strike.
    bounds = [*at[1:], history.ended][: len(at)]
    counted = -math.inf
    for strike, begin, bound in zip(history.strikes, at, bounds, strict=True):
        parts, from_step, back = _parts(history, strike, (begin, bound), counted)
        counted = back
        failure = planned[strike.failure]
        yield {
            "run": run.cell.id,
            "failure": strike.failure,
            "kind": strike.kind,
            "victim": " ".join(f"{of} {failure[of]}" for of in ("rank", "node") if of in failure),
            "stage": failure.get("stage", ""),
            "attempt": strike.attempt,
            "second": begin - history.began,
            "step": _reached(history, begin),
            "from_step": from_step,
            "ranks_before": history.ranks_at(begin),
            "ranks_after": history.ranks_at(back) if back < bound else None,
            **parts,
            "total_s": sum(parts.values()),
        }


def _reached(history: _History, moment: float) -> int:
    """Steps of the run that had been completed at this moment."""
    before = history.steps[history.spans[:, 1] <= moment]
    return int(before.max()) + 1 if len(before) else 0


Parts = tuple[dict[str, float], int | None, float]
"""The parts of a failure's time in seconds, the step after which training went on, and when it was back or went on."""


def _parts(history: _History, strike: Strike, window: Span, counted: float) -> Parts:
    """Until `counted` the time before the window is that of the failure before. Work that was begun since then is lost with this one."""
    begin, bound = window
    seen = [event for event in history.launcher if begin <= event.unix_ns / 1e9 <= bound]
    losses = [
        regroup
        for regroup in history.regroups
        if regroup.is_loss and regroup.noticed < bound and regroup.ready > begin
    ]
    if any(isinstance(event, AllEnded | Chosen) for event in seen):
        parts, from_step, back = _of_restart(history, seen, window, counted)
    elif losses:
        parts, from_step, back = _of_regroup(history, losses, window, counted)
    elif seen and not history.regroups:
        parts, from_step, back = _of_restart(history, seen, window, counted)
    else:
        parts, from_step, back = dict.fromkeys(LOST_PARTS, 0.0), None, begin
        over = min(history.struck[strike.failure], bound)
        parts["slower_s"] = max(0.0, over - begin - _usual_s(history, (begin, over)))
        back = over
    _add_later(parts, history, (back, bound), begin, anew=from_step is not None)
    return parts, from_step, back


def _of_restart(
    history: _History,
    seen: Sequence[Lost | AllEnded | Chosen],
    window: Span,
    counted: float,
) -> Parts:
    """All ranks ended, and started again."""
    begin, bound = window
    parts = dict.fromkeys(LOST_PARTS, 0.0)
    before = history.done[history.done <= begin]
    # A strike at the start of an attempt finds nothing that is unfinished.
    starting = [span for _, span in history.phases if before.size == 0 or span[0] > before[-1]]
    if before.size and not any(start <= begin for start, _ in starting):
        parts["unfinished_s"] = max(0.0, begin - max(float(before[-1]), counted))
    marks = [begin]
    for name, kind in (("detection_s", Lost), ("ending_s", AllEnded), ("choice_s", Chosen)):
        found = [event.unix_ns / 1e9 for event in seen if isinstance(event, kind)]
        marks.append(found[-1] if found else bound)
        parts[name] = marks[-1] - marks[-2]
    chosen = [event for event in seen if isinstance(event, Chosen)]
    if chosen and chosen[-1].since_unix_ns is not None:
        # Where an agent starts ranks anew, the launcher chooses when they have come up.
        coming = max(0.0, chosen[-1].since_unix_ns / 1e9 - marks[-2])
        parts["choice_s"] -= coming
        parts["launch_s"] += coming
    for name, span in history.phases:
        if span[0] >= marks[-1] - 1.0:  # the launch phase begins with the choice
            parts[name] += _within(span, (marks[-1], bound))
    parts["again_s"], back = _again(history, _reached(history, begin), (begin, bound))
    if parts["again_s"]:
        late_s = _late_s(history, window)
        parts["again_s"] -= late_s
        parts["slower_s"] += late_s
    parts["rest_s"] = (back - begin) - (sum(parts.values()) - parts["unfinished_s"])
    return parts, chosen[-1].step if chosen else None, back


def _late_s(history: _History, window: Span) -> float:
    """What the first step of the window takes beyond a usual one: a framework may compile in it, though it is done again."""
    first = history.durations[history.inside(window)][:1]
    usual = _usual_durations(history, window[0])
    if not first.size or not usual.size:
        return 0.0
    return float(np.maximum(0.0, first - np.median(usual)).sum())


def _usual_durations(history: _History, begin: float) -> Floats:
    """Durations of the steps that all ranks did before; if there are none, of all that all ranks did."""
    whole = history.ranks == history.all_ranks
    before: Floats = history.durations[whole & (history.spans[:, 1] <= begin)]
    return before if before.size else history.durations[whole]


def _of_regroup(
    history: _History, losses: Sequence[_Regroup], window: Span, counted: float
) -> Parts:
    """Ranks were lost, and the others went on."""
    begin, bound = window
    parts = dict.fromkeys(LOST_PARTS, 0.0)
    first = losses[0]
    lost = max(begin, first.noticed)
    done = history.done[history.done <= lost]
    last = float(done[-1]) if done.size else begin
    if first.noticed > begin:  # else the ranks were regrouping already when it struck
        parts["unfinished_s"] = max(0.0, begin - max(last, counted))
        parts["detection_s"] = min(first.noticed, bound) - max(begin, last)
    worked = max(0.0, last - begin)
    high = _reached(history, lost)
    again, back = (
        _again(history, high, (first.ready, bound)) if first.ready < bound else (0.0, bound)
    )
    _add_regroups(parts, history, (begin, back))
    again -= sum(sum(regroup.within((first.ready, back))) for regroup in history.regroups)
    parts["again_s"] = max(0.0, again)
    parts["rest_s"] = (back - begin - worked) - (sum(parts.values()) - parts["unfinished_s"])
    return parts, losses[-1].step, back


def _again(history: _History, high: int, window: Span) -> tuple[float, float]:
    """Seconds from the first to the last step in the window that had been done before, and when training was back."""
    later = history.inside(window)
    again = later & (history.steps < high)
    if again.any():
        own = history.spans[again]
        return float(own[-1, 1] - own[0, 0]), float(own[-1, 1])
    return 0.0, float(history.spans[later][0, 0]) if later.any() else window[1]


def _add_later(
    parts: dict[str, float], history: _History, window: Span, begin: float, *, anew: bool
) -> None:
    """Add what comes after training is back: slower steps with fewer ranks, and the wait for ranks that join.

    With all ranks a step may be slow too, if it is the first after they have joined, or training has begun `anew` with it: a
    framework may compile in it.
    """
    inside = history.inside(window)
    durations, whole = history.durations, history.ranks == history.all_ranks
    usual = _usual_durations(history, begin)
    few = durations[inside & ~whole]
    if few.size and usual.size:
        parts["slower_s"] += float((few - np.median(usual)).sum())
    begun = [regroup.ready for regroup in history.regroups if window[0] <= regroup.ready]
    if anew and not parts["again_s"]:
        begun.append(window[0])
    firsts = {
        int(later[0])
        for at in begun
        if (later := np.flatnonzero(inside & (history.spans[:, 0] >= at))).size
    }
    first = [step for step in sorted(firsts) if whole[step]]
    if usual.size:
        parts["slower_s"] += float(np.maximum(0.0, durations[first] - np.median(usual)).sum())
    _add_regroups(parts, history, window)


def _add_regroups(parts: dict[str, float], history: _History, window: Span) -> None:
    for regroup in history.regroups:
        agreed, ready = regroup.within(window)
        parts["regroup_s"] += agreed
        parts["load_s"] += ready


def _usual_s(history: _History, window: Span) -> float:
    """What the steps in the window would have taken at the median of all steps."""
    return float(np.median(history.durations) * (history.inside(window).sum() + 1))


def _within(span: Span, window: Span) -> float:
    """Seconds of the span that lie in the window."""
    return max(0.0, min(span[1], window[1]) - max(span[0], window[0]))

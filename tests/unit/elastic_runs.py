"""Struck runs in which ranks are lost and others go on, written second by second: every time and every sample is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from run_folders import FakeRun, cell

from ckptbench.common.files import write_json
from ckptbench.inputs.datasets.order import batch_slices
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.run import events
from ckptbench.run.layout import LAUNCHER_TRACE, MANIFEST, strikes_path, trace_path
from ckptbench.run.recorder import Recorder
from ckptbench.run.seal import seal

LISTED = PluginSpec("listed", (("name", "one"),))
SECOND = 10**9
EPOCH = 1_700_000_000 * SECOND
"""When the clock of the day shows 0 of the monotonic clock."""
BATCH_SIZE = 4


class Elastic:
    """A run of two epochs of six steps. A step takes 1 s unless said, a save 0.5 s and an evaluation 0.25 s."""

    def __init__(
        self,
        runs: Path,
        *,
        ranks: int = 3,
        interval: str = "never",
        kept: bool = True,
        repeat: int = 0,
    ) -> None:
        self.run = FakeRun(
            cell=cell(interval, faults=LISTED, epochs=2, ranks=ranks, batch_size=BATCH_SIZE, repeat=repeat),
            steps_per_epoch=6,
        )  # fmt: skip
        self.folder = runs / self.run.cell.id
        self.folder.mkdir(parents=True)
        self.all = range(ranks)
        self.traces = [Recorder(trace_path(self.folder, rank)) for rank in self.all]
        self.strikes = Recorder(strikes_path(self.folder, 0))
        self.launcher = Recorder(self.folder / LAUNCHER_TRACE)
        self.kept = kept
        self.world: Sequence[int] = self.all
        self.attempts = dict.fromkeys(self.all, 0)
        self.failures: list[dict[str, object]] = []
        self.now = 100.0
        self.start(self.all)
        self.strikes.write(events.Begun(monotonic_ns=self.ns, unix_ns=EPOCH + self.ns))

    @property
    def ns(self) -> int:
        return round(self.now * SECOND)

    def start(self, ranks: Sequence[int], *, began: float | None = None) -> None:
        """A launch of 1 s, an import of 2 s and a build of 1 s, which may have begun before, beside training."""
        self.now, now = self.now if began is None else began, self.now
        for name, seconds in (("launch", 1.0), ("import", 2.0), ("build", 1.0)):
            start_ns = self.ns
            self.now += seconds
            for rank in ranks:
                self.attempts[rank] += name == "launch"
                self.traces[rank].write(events.Phase(name=name, start_ns=start_ns, end_ns=self.ns))
                if name == "import":
                    self._connect(rank)
        self.now = self.now if began is None else now

    def _connect(self, rank: int) -> None:
        self.traces[rank].write(
            events.Start(
                attempt=self.attempts[rank], rank=rank, world_size=len(self.all), host="node1", pid=1, device="cpu",
                monotonic_ns=self.ns, unix_ns=EPOCH + self.ns, versions={},
            )
        )  # fmt: skip

    def steps(
        self, first: int, last: int, *, seconds: float = 1.0, ranks: Sequence[int] = ()
    ) -> None:
        """The steps from `first` to before `last`, with the saves that are due, and what comes after an epoch."""
        for step in range(first, last):
            start_ns = self.ns
            self.now += seconds
            for rank in ranks or self.world:
                self.traces[rank].step(step, start_ns, self.ns, 2.0 - step / 10 + rank / 100)
                self.traces[rank].write_steps(step // 6)
            if self.run.cell.interval.due(steps_done=step + 1, steps_per_epoch=6):
                self._save(step + 1)
            if (step + 1) % 6 == 0:
                self._epoch(step // 6)

    def _save(self, step: int) -> None:
        start_ns = self.ns
        self.now += 0.5
        files = [events.File(name="model.pt", kind="state", bytes=1000)]
        for rank in self.world:
            trace = self.traces[rank]
            trace.write(
                events.Save(step=step, epoch=(step - 1) // 6, start_ns=start_ns, end_ns=self.ns)
            )  # fmt: skip
            trace.write(events.Written(step=step, level="shared", at_ns=self.ns, files=files))
        self.traces[self.world[0]].write(
            events.Durable(
                step=step, level="shared", synced_ns=self.ns, checked_ns=self.ns, committed_ns=self.ns, files=files
            )
        )  # fmt: skip

    def _epoch(self, epoch: int) -> None:
        start_ns = self.ns
        self.now += 0.25
        for rank in self.world:
            self.traces[rank].write(
                events.Epoch(epoch=epoch, start_ns=start_ns, end_ns=start_ns, samples=1)
            )
            self.traces[rank].write(
                events.Evaluation(
                    epoch=epoch, start_ns=start_ns, end_ns=self.ns, samples=60 // len(self.world),
                    loss_sum=30.0, correct=20,
                )
            )  # fmt: skip

    def strike(self, rank: int, kind: str = "kill") -> None:
        number = len(self.failures)
        self.failures.append({"step": 1, "rank": rank, "kind": kind})
        now = {"failure": number, "monotonic_ns": self.ns, "unix_ns": EPOCH + self.ns}
        self.strikes.write(events.Strike(kind=kind, attempt=1, **now))
        self.strikes.write(events.Struck(**now))

    def lose(self, *ranks: int) -> None:
        """The launcher sees the loss at once. The others go on."""
        self.launcher.write(
            events.Lost(attempt=1, ranks=list(ranks), how="dead", unix_ns=EPOCH + self.ns)
        )

    def relaunch(self, step: int) -> None:
        """All ranks end, and start again from a version."""
        self.launcher.write(events.AllEnded(attempt=1, unix_ns=EPOCH + self.ns))
        self.launcher.write(events.Chosen(attempt=2, step=step, unix_ns=EPOCH + self.ns))
        self.world = self.all
        self.start(self.all)

    def regroup(
        self,
        world: Sequence[int],
        *,
        step: int,
        reached: Mapping[int, int],
        agreed_s: float = 0.5,
        ready_s: float = 0.25,
        ready: bool = True,
    ) -> None:
        """What the ranks notice now they have agreed on after `agreed_s`, and are ready `ready_s` later, or never."""
        self.world = world
        slices = batch_slices(world, len(self.all), BATCH_SIZE, kept=self.kept)
        noticed_ns = self.ns
        self.now += agreed_s
        agreed_ns = self.ns
        self.now += ready_s
        for rank in world:
            self.traces[rank].write(
                events.Membership(
                    step=step, ranks=list(world), first=[each.first for each in slices],
                    samples=[each.samples for each in slices], monotonic_ns=self.ns,
                )
            )  # fmt: skip
            if not ready:
                continue
            self.traces[rank].write(
                events.Regroup(
                    step=step, reached=reached[rank], noticed_ns=noticed_ns, agreed_ns=agreed_ns,
                    ready_ns=self.ns, bytes=0 if reached[rank] == step else 900,
                )
            )  # fmt: skip

    def end(self, *, attempts: int = 1) -> Path:
        for rank in self.world:
            self.traces[rank].write(events.End(monotonic_ns=self.ns))
        self.strikes.write(events.Unfired(ahead=[], missed=[], monotonic_ns=self.ns))
        manifest = self.run._usual_manifest() | {"attempts": attempts, "failures": self.failures}
        write_json(self.folder / MANIFEST, manifest)
        seal(self.folder, len(self.all))
        return self.folder


def _shrinking(runs: Path, **fields: object) -> tuple[Elastic, float]:
    """Rank 0 of three is killed in its fifth step, and the others go on after four. Also when they do."""
    run = Elastic(runs, **fields)  # type: ignore[arg-type]
    run.steps(0, 4)
    run.now += 0.25
    run.strike(0)
    run.now += 0.125
    run.lose(0)
    run.regroup([1, 2], step=4, reached={1: 4, 2: 4})
    return run, run.now


def shrunken(runs: Path, **fields: object) -> Elastic:
    """Of three ranks two go on, a step of which takes 1.5 s."""
    run, _ = _shrinking(runs, **fields)
    run.steps(4, 12, seconds=1.5)
    return run


def replaced(runs: Path, **fields: object) -> Elastic:
    """As `shrunken`, but for a new rank 0, which joins after nine steps."""
    run, began = _shrinking(runs, **fields)
    run.steps(4, 9, seconds=1.5)
    run.start([0], began=began)
    run.regroup([0, 1, 2], step=9, reached={0: 0, 1: 9, 2: 9}, agreed_s=0.125, ready_s=0.375)
    run.steps(9, 12)
    return run

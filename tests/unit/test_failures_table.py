"""Where the time of a failure goes: every moment belongs to one part, and the parts add up to the loss."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from labelled import with_specs
from run_folders import FakeRun, cell

from ckptbench.analysis.collect.run_folder import Run
from ckptbench.analysis.collect.runs import collect
from ckptbench.analysis.cost.goodput import goodput
from ckptbench.analysis.derive import derive
from ckptbench.common.files import write_json
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.run import events
from ckptbench.run.layout import LAUNCHER_TRACE, MANIFEST, strikes_path, trace_path
from ckptbench.run.recorder import Recorder
from ckptbench.run.seal import seal

LISTED = PluginSpec("listed", (("name", "one"),))
SECOND = 10**9
EPOCH = 1_700_000_000 * SECOND
"""When the clock of the day shows 0 of the monotonic clock."""


class Story:
    """Writes a struck run of ten steps of 1 s, with a checkpoint of 0.5 s after every fourth, second by second."""

    def __init__(self, runs: Path) -> None:
        self.run = FakeRun(cell=cell("s4", faults=LISTED, epochs=1))
        self.folder = runs / self.run.cell.id
        self.folder.mkdir(parents=True)
        self.trace = Recorder(trace_path(self.folder, 0))
        self.strikes = Recorder(strikes_path(self.folder, 0))
        self.launcher = Recorder(self.folder / LAUNCHER_TRACE)
        self.now = 100.0
        self.attempt = 0

    @property
    def ns(self) -> int:
        return round(self.now * SECOND)

    def phase(self, name: str, seconds: float, **fields: int) -> None:
        start_ns = self.ns
        self.now += seconds
        self.trace.write(events.Phase(name=name, start_ns=start_ns, end_ns=self.ns, **fields))

    def start(self, *, load_s: float = 0.0) -> None:
        self.attempt += 1
        for name, seconds in (("launch", 0.3), ("meet", 0.2), ("import", 2.0), ("join", 0.5)):
            self.phase(name, seconds)
        self.trace.write(
            events.Start(
                attempt=self.attempt, rank=0, world_size=1, host="node1", pid=1, device="cpu",
                monotonic_ns=self.ns, unix_ns=EPOCH + self.ns, versions={},
            )
        )  # fmt: skip
        self.phase("build", 1.0)
        if load_s:
            self.phase("load", load_s, bytes=1000)

    def steps(self, first: int, last: int, *, seconds: float = 1.0) -> None:
        for step in range(first, last):
            start_ns = self.ns
            self.now += seconds
            self.trace.step(step, start_ns, self.ns, 1.0)
            self.trace.write_steps(0)
            if (step + 1) % 4 == 0:
                self._save(step + 1)

    def _save(self, step: int) -> None:
        start_ns = self.ns
        self.now += 0.5
        files = [events.File(name="model.pt", kind="state", bytes=1000)]
        self.trace.write(events.Save(step=step, epoch=0, start_ns=start_ns, end_ns=self.ns))
        self.trace.write(events.Captured(step=step, at_ns=self.ns))
        self.trace.write(events.Written(step=step, level="shared", at_ns=self.ns, files=files))
        self.trace.write(
            events.Durable(
                step=step, level="shared", synced_ns=self.ns, checked_ns=self.ns, committed_ns=self.ns, files=files
            )
        )  # fmt: skip

    def begun(self) -> None:
        self.strikes.write(events.Begun(monotonic_ns=self.ns, unix_ns=EPOCH + self.ns))

    def strike(self, failure: int, kind: str = "kill", lasts_s: float = 0.0) -> None:
        self.strikes.write(
            events.Strike(
                failure=failure, kind=kind, attempt=self.attempt,
                monotonic_ns=self.ns, unix_ns=EPOCH + self.ns,
            )
        )  # fmt: skip
        over = round(lasts_s * SECOND) + self.ns
        self.strikes.write(events.Struck(failure=failure, monotonic_ns=over, unix_ns=EPOCH + over))

    def lose(
        self,
        *,
        step: int,
        detection_s: float,
        ending_s: float,
        choice_s: float,
        coming_s: float = 0.0,
    ) -> None:
        """`coming_s`: how long the new ranks take to come up, where that is before the choice."""
        self.now += detection_s
        at = EPOCH + self.ns
        self.launcher.write(events.Lost(attempt=self.attempt, ranks=[0], how="dead", unix_ns=at))
        self.now += ending_s
        self.launcher.write(events.AllEnded(attempt=self.attempt, unix_ns=EPOCH + self.ns))
        self.now += coming_s
        since_unix_ns = EPOCH + self.ns
        self.now += choice_s
        self.launcher.write(
            events.Chosen(
                attempt=self.attempt + 1, step=step, since_unix_ns=since_unix_ns, unix_ns=EPOCH + self.ns
            )
        )  # fmt: skip

    def end(self, *failures: dict[str, object]) -> None:
        first_ns = 100 * SECOND
        self.trace.write(events.Epoch(epoch=0, start_ns=first_ns, end_ns=self.ns, samples=80))
        self.trace.write(events.End(monotonic_ns=self.ns))
        self.strikes.write(events.Unfired(ahead=[], missed=[], monotonic_ns=self.ns))
        manifest = self.run._usual_manifest()
        manifest |= {"attempts": self.attempt, "failures": list(failures)}
        write_json(self.folder / MANIFEST, manifest)
        seal(self.folder, 1)


def killed_once(runs: Path) -> Story:
    story = Story(runs)
    story.start()
    story.begun()
    story.steps(0, 7)
    story.now += 0.25
    story.strike(0)
    story.lose(step=4, detection_s=0.5, ending_s=1.5, choice_s=0.125)
    story.start(load_s=0.75)
    story.now += 0.0625  # in no phase
    story.steps(4, 10)
    story.end({"step": 7, "rank": 0, "kind": "kill"})
    return story


def test_a_run_that_ended_before_its_failures_came_has_none(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.start()
    story.begun()
    story.steps(0, 10)
    story.end({"second": 600.0, "rank": 0, "kind": "kill"})
    assert collect([story.folder])["failures"].empty


def test_each_part_of_a_failure_is_told(tmp_path: Path) -> None:
    story = killed_once(tmp_path)
    (row,) = collect([story.folder])["failures"].to_dict("records")
    assert (row["victim"], row["kind"], row["attempt"]) == ("rank 0", "kill", 1)
    assert (row["step"], row["from_step"], row["second"]) == (7, 4, pytest.approx(7.75))
    parts = {
        "unfinished_s": 0.25, "detection_s": 0.5, "ending_s": 1.5, "choice_s": 0.125, "launch_s": 0.5,
        "import_s": 2.0, "build_s": 1.5, "load_s": 0.75, "again_s": 3.0, "slower_s": 0.0, "rest_s": 0.0625,
    }  # fmt: skip
    assert {name: row[name] for name in parts} == pytest.approx(parts, abs=1e-6)
    assert row["total_s"] == pytest.approx(sum(parts.values()))


def test_the_loss_that_is_noticed_last_ends_the_detection(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.start()
    story.begun()
    story.steps(0, 8)
    story.strike(0)
    story.now += 0.25
    at = EPOCH + story.ns
    story.launcher.write(events.Lost(attempt=1, ranks=[0], how="dead", unix_ns=at))
    story.lose(step=8, detection_s=0.5, ending_s=1.5, choice_s=0.125)
    story.start(load_s=0.75)
    story.steps(8, 10)
    story.end({"step": 8, "rank": 0, "kind": "kill"})
    (row,) = collect([story.folder])["failures"].to_dict("records")
    assert (row["detection_s"], row["ending_s"]) == (pytest.approx(0.75), pytest.approx(1.5))


@pytest.mark.parametrize(
    ("steps", "seconds", "parts_s"), [((8, 8), 4.0, (0, 3.0)), ((7, 4), 6.0, (3.0, 5.0))]
)
def test_what_the_first_step_of_new_processes_takes_longer_is_no_work_though_it_is_done_again(
    tmp_path: Path, steps: tuple[int, int], seconds: float, parts_s: tuple[float, float]
) -> None:
    """A framework may compile in it."""
    struck, lost = steps
    story = Story(tmp_path)
    story.start()
    story.begun()
    story.steps(0, struck)
    story.strike(0)
    story.lose(step=lost, detection_s=0.5, ending_s=1.5, choice_s=0.125)
    story.start(load_s=0.75)
    story.steps(lost, lost + 1, seconds=seconds)
    story.steps(lost + 1, 10)
    story.end({"step": struck, "rank": 0, "kind": "kill"})
    (row,) = collect([story.folder])["failures"].to_dict("records")
    assert (row["again_s"], row["slower_s"]) == pytest.approx(parts_s)
    assert row["rest_s"] == pytest.approx(0, abs=1e-6)


def test_the_parts_are_the_loss_against_the_undisturbed_run(tmp_path: Path) -> None:
    story = killed_once(tmp_path)

    def step_s(rank: int, step: int) -> float:
        return 1.0

    def stall_s(rank: int, step: int) -> float:
        return 0.5

    whole = FakeRun(cell=story.run.cell.reference, step_s=step_s, stall_s=stall_s, evaluates=False)
    baseline = FakeRun(cell=story.run.cell.baseline, step_s=step_s, evaluates=False)
    folders = [story.folder, whole.write(tmp_path), baseline.write(tmp_path)]
    tables = derive(collect(folders))
    (row,) = tables["goodput"].to_dict("records")
    assert row["failures"] == 1
    assert row["useful_s"] == pytest.approx(10)
    assert row["loss_s"] == pytest.approx(row["parts_s"])
    assert row["explained"] == pytest.approx(1)
    assert row["goodput"] == pytest.approx(10 / row["wall_s"])
    assert row["failures_per_hour"] == pytest.approx(3600 / row["wall_s"])
    for timing in ("overhead", "strategies", "scaling", "checkpoint_cost"):
        assert "listed name=one" not in set(tables[timing].get("history", ()))


def beside(
    tmp_path: Path, *times_s: tuple[float, float, float], recovery: str = "restart"
) -> dict[str, Any]:
    """The row of a setup from the times of each repeat: of its struck run, of its undisturbed one, and of the one failure that
    struck. Those of the baselines are 10 s."""
    story = killed_once(tmp_path)
    whole, baseline = (FakeRun(cell=own) for own in (story.run.cell.reference, story.run.cell.baseline))  # fmt: skip
    once = dict(derive(collect([story.folder, whole.write(tmp_path), baseline.write(tmp_path)])))
    once["runs"] = once["runs"].assign(**with_specs({"recovery": recovery}))
    repeats = []
    for repeat, (struck_s, whole_s, failure_s) in enumerate(times_s):
        own_s = {story.run.cell.id: struck_s, whole.cell.id: whole_s, baseline.cell.id: 10.0}
        tables = {
            "runs": once["runs"].assign(repeat=repeat, wall_s=once["runs"]["run"].map(own_s)),
            "failures": once["failures"].assign(total_s=failure_s),
            **{
                name: once[name]
                for name in ("lineage", "resume_proof", "steps", "epochs", "evaluations")
            },
        }
        names = ["run", "reference", "baseline"]
        repeats.append(
            {
                table: frame.assign(**{name: frame[name] + f"-{repeat}" for name in names if name in frame})
                for table, frame in tables.items()
            }
        )  # fmt: skip
    together = {name: pd.concat([own[name] for own in repeats]) for name in repeats[0]}
    (row,) = goodput(together).to_dict("records")
    return {str(name): value for name, value in row.items()}


def test_losses_and_their_parts_are_means_over_repeats(tmp_path: Path) -> None:
    row = beside(tmp_path, (18.0, 10.0, 7.5), (26.0, 20.5, 3.5))
    assert (row["loss_s"], row["parts_s"]) == pytest.approx((6.75, 5.5))
    assert row["explained"] == pytest.approx(5.5 / 6.75)


@pytest.mark.parametrize(("recovery", "bounded"), [("restart", True), ("ulfm replace=True", False)])
def test_the_goodput_may_be_above_one_where_fewer_ranks_can_be_faster(
    tmp_path: Path, recovery: str, bounded: bool
) -> None:
    row = beside(tmp_path, (10.5, 10.0, 1.0), (11.0, 10.0, 1.0), recovery=recovery)
    assert row["goodput"] == pytest.approx(20 / 21.5)
    assert row["goodput_hi"] == 1 if bounded else row["goodput_hi"] > 1.1


def test_a_failure_while_recovering_cuts_the_one_before(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.start()
    story.begun()
    story.steps(0, 7)
    story.strike(0)
    story.lose(step=4, detection_s=0.5, ending_s=0.5, choice_s=0.0)
    story.attempt += 1
    story.phase("launch", 0.5)
    story.now += 1.0  # in the import, which does not end
    story.strike(1)
    story.lose(step=4, detection_s=0.25, ending_s=0.25, choice_s=0.0)
    story.start(load_s=0.5)
    story.steps(4, 10)
    story.end({"step": 7, "rank": 0}, {"moment": "recovery", "rank": 0})
    first, second = collect([story.folder])["failures"].to_dict("records")
    assert (first["again_s"], first["rest_s"]) == (0.0, pytest.approx(1.0))
    assert first["total_s"] == pytest.approx(0.5 + 0.5 + 0.5 + 1.0)
    assert (second["unfinished_s"], second["step"]) == (0.0, 7)
    assert second["again_s"] == pytest.approx(3)
    assert second["total_s"] == pytest.approx(0.5 + 4.0 + 0.5 + 3.0)


def test_ranks_that_come_up_before_the_choice_are_a_relaunch(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.start()
    story.begun()
    story.steps(0, 7)
    story.strike(0)
    story.lose(step=4, detection_s=0.5, ending_s=0.25, coming_s=2.0, choice_s=0.125)
    story.phase("import", 1.0)
    story.steps(4, 10)
    story.end({"step": 7, "rank": 0})
    (row,) = collect([story.folder])["failures"].to_dict("records")
    assert (row["launch_s"], row["choice_s"]) == pytest.approx((2, 0.125), abs=1e-6)
    assert (row["ending_s"], row["import_s"]) == pytest.approx((0.25, 1), abs=1e-6)
    assert row["total_s"] == pytest.approx(0.5 + 0.25 + 2 + 0.125 + 1 + 3)


def test_a_hang_that_nobody_gives_up_costs_its_time(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.start()
    story.begun()
    story.steps(0, 5)
    story.strike(0, "hang", lasts_s=2.0)
    story.now += 2.0
    story.steps(5, 10)
    story.end({"step": 5, "rank": 0, "kind": "hang", "lasts_s": 2.0})
    (row,) = collect([story.folder])["failures"].to_dict("records")
    assert row["slower_s"] == row["total_s"] == pytest.approx(1.0)  # of one step it is not known
    assert row["from_step"] != row["from_step"] or row["from_step"] is None


def test_a_struck_run_is_no_timing(tmp_path: Path) -> None:
    story = killed_once(tmp_path)
    run = Run.read(story.folder)
    assert dataclasses.replace(run.cell, faults=PluginSpec("none")) == run.cell.reference
    (row,) = collect([story.folder])["runs"].to_dict("records")
    assert not row["timing_valid"]
    assert (row["history"], row["history_name"]) == ("listed name=one", "listed")
    assert json.loads(row["history_options"]) == {"name": "one"}
    assert (row["recovery_name"], row["recovery_options"]) == ("restart", "{}")

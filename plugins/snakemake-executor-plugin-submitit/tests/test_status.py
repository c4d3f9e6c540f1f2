import dataclasses
from pathlib import Path

import pytest
from fakes import COMPLETED, RUNNING, TIMEOUT, UNKNOWN, FakeCluster, FakeJob, Logger

from snakemake_executor_plugin_submitit import requeues, tally
from snakemake_executor_plugin_submitit.cluster import JobState
from snakemake_executor_plugin_submitit.requeues import Requeue
from snakemake_executor_plugin_submitit.status import (
    RESULT_LATENCY_SECONDS,
    UNKNOWN_SECONDS,
    Backoff,
    Poller,
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Watch:
    """A poller over jobs 0, 1, ... of a fake cluster."""

    def __init__(self, folder: Path, jobs: int = 1) -> None:
        self.cluster, self.clock, self.logger = FakeCluster(), Clock(), Logger()
        self.jobs = [FakeJob(folder, str(number)) for number in range(jobs)]
        self.poller = Poller(self.cluster, self.logger, self.clock)  # type: ignore[arg-type]

    def hold(self, job_id: str) -> None:
        self.cluster.states[job_id] = waiting("JobHeldUser", f"`release {job_id}`")

    def round(self) -> dict[str, str | None]:
        return {outcome.job.job_id: outcome.error for outcome in self.poller.ended(self.jobs)}


def waiting(reason: str, remedy: str = "") -> JobState:
    words = f"PENDING ({reason})"
    return JobState(known=True, ended=False, killed=False, words=words, remedy=remedy)


def test_a_result_is_seen_without_asking_the_scheduler(tmp_path: Path):
    watch = Watch(tmp_path)
    watch.jobs[0].finish()
    assert watch.round() == {"0": None}
    assert watch.poller.queries == 0


def test_an_error_is_told_in_the_words_of_the_exception(tmp_path: Path):
    watch = Watch(tmp_path)
    trace = "Traceback ...\n  line\npackage.CommandFailedError: the command ended with status 3\n"
    watch.jobs[0].finish("error", trace)
    assert watch.round() == {"0": "the command ended with status 3"}


def test_a_job_that_slurm_does_not_requeue_says_what_to_do(tmp_path: Path):
    watch = Watch(tmp_path)
    trace = "subprocess.CalledProcessError: Command '['scontrol', 'requeue', '7']' returned non-zero exit status 1."
    watch.jobs[0].finish("error", f"Traceback ...\n  line\n{trace}\n")
    assert str(watch.round()["0"]).startswith("Slurm did not take the job back before its time")


def test_any_number_of_jobs_is_one_query(tmp_path: Path):
    watch = Watch(tmp_path, jobs=50)
    assert watch.round() == {}
    assert watch.poller.queries == 1


def test_a_killed_job_fails_in_the_same_round(tmp_path: Path):
    watch = Watch(tmp_path)
    watch.cluster.states["0"] = TIMEOUT
    assert watch.round() == {"0": "ended without a result: TIMEOUT (after 00:01:00)"}


def test_jobs_that_wait_for_a_person_are_named_once_with_the_command(tmp_path: Path):
    watch = Watch(tmp_path, jobs=4)
    for number in range(3):
        watch.hold(str(number))
    assert watch.round() == {}
    watch.hold("3")
    assert watch.round() == {}
    assert watch.round() == {}
    watch.cluster.states["0"] = waiting("PartitionDown", "`look 0`")
    watch.cluster.states["3"] = dataclasses.replace(waiting("", "`resume 3`"), words="SUSPENDED")
    for _ in range(2):
        assert watch.round() == {}
    watch.cluster.states["0"] = waiting("JobHeldUser", "`release 0`")
    assert watch.round() == {}
    assert watch.logger.lines == [
        "fake job 0 and 2 more will not start by itself: PENDING (JobHeldUser). `release 0`.",
        "fake job 3 will not start by itself: PENDING (JobHeldUser). `release 3`.",
        "fake job 0 will not start by itself: PENDING (PartitionDown). `look 0`.",
        "fake job 3 will not go on by itself: SUSPENDED. `resume 3`.",
    ]


def test_a_note_on_the_answers_is_told_once(tmp_path: Path):
    watch = Watch(tmp_path)
    watch.cluster.note = "accounting is off"
    for _ in range(3):
        assert watch.round() == {}
    assert watch.logger.lines == ["accounting is off"]


def test_every_few_minutes_a_line_says_how_many_wait_and_run(tmp_path: Path):
    watch = Watch(tmp_path, jobs=3)
    watch.round()
    assert watch.logger.lines == []
    watch.clock.now = tally.SECONDS
    watch.cluster.states["0"] = waiting("Priority")
    watch.round()
    watch.round()
    watch.clock.now += tally.SECONDS
    watch.cluster.states["0"] = RUNNING
    watch.round()
    assert watch.logger.lines == [
        "fake: 1 jobs waiting, 2 running; back in the queue so far: 1 by the scheduler.",
        "fake: 0 jobs waiting, 3 running; back in the queue so far: 1 by the scheduler.",
    ]


def test_preempted_jobs_are_counted_apart_from_others_that_went_back_to_the_queue(tmp_path: Path):
    """By their own notes, though nobody saw them wait. The scheduler sent back those that noted nothing."""
    watch = Watch(tmp_path, jobs=5)
    watch.round()
    for job, why in zip(watch.jobs, ("limit", "preempted"), strict=False):
        requeues.note(job.paths, Requeue(why))  # type: ignore[arg-type]
    watch.cluster.states |= {number: waiting("BeginTime") for number in ("0", "2", "3")}
    watch.round()
    watch.cluster.states.clear()
    watch.round()
    requeues.note(watch.jobs[0].paths, Requeue("limit"))
    requeues.note(watch.jobs[2].paths, Requeue("limit"))
    watch.cluster.states["2"] = waiting("BeginTime")
    watch.clock.now = tally.SECONDS
    watch.round()
    assert watch.logger.lines == [
        "fake: 1 jobs waiting, 4 running; back in the queue so far: 1 preempted or asked to stop, 3 at a time limit, "
        "2 by the scheduler."
    ]


def test_a_job_that_lost_a_node_is_named_at_once_with_the_node(tmp_path: Path):
    watch = Watch(tmp_path)
    watch.round()
    requeues.note(watch.jobs[0].paths, Requeue("lost", ("node2", "node5")))
    for _ in range(2):
        watch.round()
    assert watch.logger.lines == ["fake job 0 lost node2, node5 and was requeued."]


def test_a_result_may_come_a_little_later_than_the_end(tmp_path: Path):
    watch = Watch(tmp_path)
    watch.cluster.states["0"] = COMPLETED
    assert watch.round() == {}
    watch.clock.now = RESULT_LATENCY_SECONDS - 1
    assert watch.round() == {}
    watch.clock.now = RESULT_LATENCY_SECONDS
    assert watch.round() == {"0": "ended without a result: COMPLETED"}


def test_a_job_that_the_scheduler_does_not_know_fails_after_a_while(tmp_path: Path):
    watch = Watch(tmp_path)
    watch.cluster.states["0"] = UNKNOWN
    assert watch.round() == {}
    watch.clock.now = UNKNOWN_SECONDS
    assert "may have been purged" in str(watch.round()["0"])


def test_a_job_that_is_known_again_has_all_the_time_once_more(tmp_path: Path):
    watch = Watch(tmp_path)
    for hour, state in enumerate((UNKNOWN, RUNNING, UNKNOWN)):
        watch.cluster.states["0"] = state
        watch.clock.now = 3600 * hour
        assert watch.round() == {}


def test_a_scheduler_that_does_not_answer_fails_no_job(tmp_path: Path):
    watch = Watch(tmp_path)
    watch.cluster.states["0"] = UNKNOWN
    watch.round()
    watch.cluster.answers = False
    watch.clock.now = 2 * UNKNOWN_SECONDS
    assert watch.round() == {}
    assert "did not answer a status query (1 in a row): nobody there." in watch.logger.lines[0]
    watch.cluster.answers = True
    assert watch.round() == {}


def test_an_outage_is_told_ever_more_rarely(tmp_path: Path):
    watch = Watch(tmp_path)
    watch.cluster.answers = False
    for _ in range(1000):
        assert watch.round() == {}
    assert len(watch.logger.lines) == 10


def test_rounds_grow_apart_and_come_together_again():
    backoff = Backoff(2, 30)
    for _ in range(20):
        backoff.grow()
    assert backoff.seconds == 30
    backoff.reset()
    assert backoff.seconds == 2


@pytest.mark.parametrize(
    ("asked", "shortest", "longest"),
    [(10, 2, 30), (1, 1, 3), (0, 0.1, 2), (20, 2, 30), (60, 2, 60)],
)
def test_rounds_are_as_far_apart_as_snakemakes_option_allows(
    asked: float, shortest: float, longest: float
):
    backoff = Backoff.of(asked)
    assert backoff.seconds == shortest
    for _ in range(20):
        backoff.grow()
    assert backoff.seconds == longest

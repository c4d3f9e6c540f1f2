"""What both executors have of the base: each test runs with that of PBS and with that of Grid Engine."""

from __future__ import annotations

import os
import string
from pathlib import Path
from typing import Any

import pytest
import submitit
from submitit.core.utils import FailedSubmissionError

from submitit_gridengine import GridEngineExecutor
from submitit_pbs import PbsExecutor
from submitit_qsub import Parameters, QsubExecutor

FILE = Path("/shared/jobs/job.sh")
CONTROL = "\n\r\t\v\f\x00\x07\x1b\x85\u2028\u2029"
EXECUTORS = {"#PBS": PbsExecutor, "#$": GridEngineExecutor}
MARKS = {executor: mark for mark, executor in EXECUTORS.items()}
ANSWERS = {
    PbsExecutor: ("123.pbs1", "123[].pbs1.example.org"),
    GridEngineExecutor: ("123", "123.1-20:1"),
}

every = pytest.mark.parametrize("executor", EXECUTORS.values())


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*os.environ]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")


def options(executor: type[QsubExecutor], **parameters: Any) -> list[str]:
    made = executor("/shared/jobs")
    made.update_parameters(**{"python": "python3", **parameters})
    text = made._make_submission_file_text(made._submitit_command_str, "0")
    mark = MARKS[executor]
    return [line.removeprefix(f"{mark} ") for line in text.splitlines() if line.startswith(mark)]


@pytest.mark.parametrize(
    ("executor", "name"),
    [
        (executor, name)
        for executor in EXECUTORS.values()
        for kind in ("words", "lines", "lists")
        for name in getattr(executor.parameters_class, kind)
    ],
)
def test_no_parameter_begins_another_line(executor: type[QsubExecutor], name: str) -> None:
    for character in CONTROL:
        with pytest.raises(ValueError, match=f"{name} is ") as refused:
            options(executor, **{name: f"-a{character}{MARKS[executor]} -o /elsewhere"})
        assert len(str(refused.value).splitlines()) == 1


@every
@pytest.mark.parametrize("value", ["a b", 'a"b', "a'b", "a#b", "a\\b", "-a", "a\u00a0b"])
def test_a_name_is_one_word(executor: type[QsubExecutor], value: str) -> None:
    for name in executor.parameters_class.words:
        with pytest.raises(ValueError, match=f"{name} is "):
            options(executor, **{name: value})


@every
@pytest.mark.parametrize("option", ["P", "-P x", "-", "", "-P\n"])
def test_an_option_is_one_option(executor: type[QsubExecutor], option: str) -> None:
    with pytest.raises(ValueError, match="account_option is "):
        options(executor, account_option=option)


@every
@pytest.mark.parametrize("character", string.printable + CONTROL + "é学😀")
def test_any_name_of_a_job_is_one_word(executor: type[QsubExecutor], character: str) -> None:
    found = options(executor, name=f"a{character}b")
    assert f"-N a{character}b" in found or "-N a_b" in found
    assert len(found) == len(options(executor))


@pytest.mark.parametrize(
    ("stop_seconds", "timeout_min", "stop_after_s"),
    [(90, 60, 3510), (90, 1, 30), (90, 0.1, 3), (0, 60, None)],
)
def test_the_stop_comes_at_most_half_the_time_early(
    stop_seconds: float, timeout_min: float, stop_after_s: int | None
) -> None:
    parameters = Parameters(stop_seconds=stop_seconds, timeout_min=timeout_min)
    assert parameters.stop_after_s == stop_after_s


@every
def test_a_text_is_a_list_of_one(executor: type[QsubExecutor]) -> None:
    assert options(executor, extra="-p -10") == options(executor, extra=["-p -10"])
    assert "-p -10" in options(executor, extra="-p -10")


@every
@pytest.mark.parametrize(
    "name", ["timeout_min", "nodes", "tasks_per_node", "processes_per_node", "cpus_per_task"]
)
def test_nothing_is_refused(executor: type[QsubExecutor], name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is 0"):
        options(executor, **{name: 0})


@every
def test_more_tasks_than_results_are_refused(executor: type[QsubExecutor], tmp_path: Path) -> None:
    """submitit promises a result of each task."""
    made = submitit.AutoExecutor(tmp_path, cluster=executor.name())
    with pytest.raises(
        ValueError, match=r"tasks_per_node is 3: .* Use processes_per_node"
    ) as refused:
        made.update_parameters(tasks_per_node=3)
    assert len(str(refused.value).splitlines()) == 1


@every
def test_parameters_come_through_submitit(executor: type[QsubExecutor], tmp_path: Path) -> None:
    cluster = executor.name()
    auto = submitit.AutoExecutor(tmp_path, cluster=cluster)
    auto.update_parameters(timeout_min=7, **{f"{cluster}_queue": "fast"})
    made: Any = auto._executor
    assert (made.asked.timeout_min, made.asked.queue) == (7, "fast")
    with pytest.raises(NameError, match=f"{cluster}_colour"):
        auto.update_parameters(**{f"{cluster}_colour": "red"})


@every
def test_python_is_an_argument_of_the_executor(
    executor: type[QsubExecutor], tmp_path: Path
) -> None:
    """As with submitit's own executors, and first of all."""
    cluster = executor.name()
    given: dict[str, Any] = {f"{cluster}_python": "python3 -X dev", f"{cluster}_max_num_timeout": 7}
    made: Any = submitit.AutoExecutor(tmp_path, cluster=cluster, **given)._executor
    assert made._submitit_command_str.startswith("python3 -X dev -u -m submitit")
    assert made.max_num_timeout == 7
    with pytest.raises(ValueError, match="python is "):
        executor(tmp_path, python="python3\nrm")


@every
def test_a_name_begins_with_a_letter(executor: type[QsubExecutor]) -> None:
    assert "-N j4_ranks" in options(executor, name="4 ranks")


@every
def test_a_forgotten_job_is_not_asked_for(executor: type[QsubExecutor]) -> None:
    watcher = type(executor.job_class.watcher)()
    watcher.register_job("1")
    watcher.forget("1")
    watcher.ask()
    assert watcher.num_calls == 0


@every
def test_what_qsub_mangles_does_not_reach_it(
    executor: type[QsubExecutor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASH_FUNC_module%%", "() { true; }")
    monkeypatch.setenv("LINES_", "one\ntwo")
    command = executor("/shared/jobs")._make_submission_command(FILE)
    assert command[:4] == ["env", "--unset=BASH_FUNC_module%%", "--unset=LINES_", "qsub"]


@every
@pytest.mark.parametrize("form", ["{}\n", "Welcome\n{}"])
def test_the_id_is_read_from_what_qsub_prints(executor: type[QsubExecutor], form: str) -> None:
    for answer in ANSWERS[executor]:
        printed = form.format(answer)
        assert executor._get_job_id_from_submission_command(printed) == "123"
        assert executor._get_job_id_from_submission_command(printed.encode()) == "123"


@every
def test_another_answer_of_qsub_is_an_error(executor: type[QsubExecutor]) -> None:
    with pytest.raises(FailedSubmissionError, match="no job id, but 'denied'"):
        executor._get_job_id_from_submission_command("denied")


@every
def test_a_missing_qsub_is_named(
    executor: type[QsubExecutor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    made = executor(tmp_path)
    if executor is GridEngineExecutor:
        made.update_parameters(python="python3")
    with pytest.raises(FailedSubmissionError, match="qsub was not found"):
        made.submit(print)


@every
def test_more_nodes_than_a_job_of_the_queue_may_have_are_refused(
    executor: type[QsubExecutor],
) -> None:
    most = {"max_nodes": {"part": 1, "whole": 2}, "parallel_environment": "mpi"}
    if executor is PbsExecutor:
        del most["parallel_environment"]
    with pytest.raises(
        ValueError, match=r"2 nodes, but a job in the queue part has at most 1 \(max_nodes\)"
    ):
        options(executor, queue="part", nodes=2, **most)
    for queue, nodes in (("part", 1), ("whole", 2), (None, 5), ("another", 5)):
        assert options(executor, queue=queue, nodes=nodes, **most)
    for wrong in (3, [3], {"part": "many"}, {"part": 0}):
        with pytest.raises(ValueError, match=r"max_nodes is .*must be a mapping"):
            options(executor, queue="part", max_nodes=wrong)

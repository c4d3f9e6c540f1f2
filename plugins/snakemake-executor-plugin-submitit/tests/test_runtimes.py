"""Time limits that Snakemake misreads."""

import contextlib

import pytest
from fakes import SnakemakeJob
from snakemake import resources, rules
from snakemake_interface_common.exceptions import WorkflowError

from snakemake_executor_plugin_submitit import runtimes
from snakemake_executor_plugin_submitit.resources import Allocation
from snakemake_executor_plugin_submitit.settings import ExecutorSettings

MEANT = {
    "120.0": 120,
    "90.5": 91,
    "150s": 3,
    "90 s": 2,
    "2-0": 2880,
    "1-12": 2160,
    "1-12:30": 2190,
    "1d12h": 2160,
    "2h30m": 150,
    "00:30:00": 30,
    "1:00:01": 61,
    "30:00": 30,
}
READ_WELL = ("120", "90m", "1.5h", "2d", "2 days", "attempt * 60", "60*2", "")


def read(name: str, value: object) -> object:
    """As Snakemake does: newer versions, and older ones."""
    if hasattr(resources, "Resource"):
        return resources.Resource(name, value).value
    found = {name: value}
    rules.infer_resources(name, value, found)
    return found[name]


@pytest.fixture(autouse=True)
def _noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtimes, "_misread", {})


@pytest.mark.parametrize(("text", "minutes"), MEANT.items())
def test_a_time_limit_that_snakemake_misreads_is_refused_with_its_minutes(text: str, minutes: int):
    with contextlib.suppress(WorkflowError):  # Snakemake's own words name no form
        read("runtime", text)
    with pytest.raises(WorkflowError, match=f"runtime='{text}' as.*write runtime={minutes}, or"):
        Allocation.of(SnakemakeJob(), ExecutorSettings(cluster="slurm"))  # type: ignore[arg-type]


@pytest.mark.parametrize("text", READ_WELL)
def test_a_time_limit_that_snakemake_reads_as_it_is_written_is_taken(text: str):
    assert runtimes.minutes_meant(text) is None


@pytest.mark.parametrize("text", [*MEANT, "2d", "90m"])
def test_no_other_resource_is_looked_at(text: str):
    assert read("qos", text) == text
    runtimes.check()


def test_a_time_limit_as_a_number_is_minutes():
    assert read("runtime", 120.0) == 120
    runtimes.check()

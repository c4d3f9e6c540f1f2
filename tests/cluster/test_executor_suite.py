"""Snakemake's own test suite for executor plugins: on Slurm, and on PBS without a shared file system."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import snakemake.common.tests

from snakemake_executor_plugin_submitit import ExecutorSettings
from tests.cluster.executor_workflow import look_for_secret


class Suite(snakemake.common.tests.TestWorkflowsLocalStorageBase):
    cluster: str
    options: tuple[str, ...] = ()

    def get_executor(self) -> str:
        return "submitit"

    def get_executor_settings(self) -> ExecutorSettings:
        return ExecutorSettings(cluster=self.cluster, options=list(self.options))


@pytest.mark.usefixtures("slurm")
class TestSlurm(Suite):
    __test__ = True
    cluster = "slurm"
    # A rule of the suite asks for 5 MB, in which no nested Snakemake fits.
    options = ("mem=500MB",)


@pytest.mark.usefixtures("gridengine")
def test_a_declared_variable_reaches_a_job_of_grid_engine_unseen(tmp_path: Path) -> None:
    look_for_secret(tmp_path, "gridengine")


@pytest.mark.usefixtures("pbs_client")
class TestPbsWithoutSharedFiles(Suite):
    """Files are in a storage, and Snakemake is on the PATH of a job; the folder of the executor is shared all the same."""

    __test__ = True
    cluster = "pbs"
    test_group_workflow = None

    @pytest.fixture(autouse=True)
    def _storage(self) -> Iterator[None]:
        with tempfile.TemporaryDirectory() as self.folder:
            yield

    def get_assume_shared_fs(self) -> bool:
        return False

    def get_default_storage_provider(self) -> str:
        return "fs"

    def get_default_storage_prefix(self) -> str:
        return self.folder

    def get_executor_settings(self) -> ExecutorSettings:
        settings = super().get_executor_settings()
        settings.options.append(f'setup=["export PATH={Path(sys.executable).parent}:$PATH"]')
        return settings

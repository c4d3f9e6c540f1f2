"""Snakemake's own test suite for executor plugins, on real schedulers."""

from __future__ import annotations

import pytest
import snakemake.common.tests

from snakemake_executor_plugin_submitit import ExecutorSettings


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
class TestGridEngine(Suite):
    __test__ = True
    cluster = "gridengine"
    options = ("parallel_environment=smp",)

"""Snakemake's own test suite for executor plugins, with processes on this machine."""

import snakemake.common.tests

from snakemake_executor_plugin_submitit import ExecutorSettings


class TestLocal(snakemake.common.tests.TestWorkflowsLocalStorageBase):
    __test__ = True

    def get_executor(self) -> str:
        return "submitit"

    def get_executor_settings(self) -> ExecutorSettings:
        return ExecutorSettings(cluster="local")

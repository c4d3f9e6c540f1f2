"""The executor that Snakemake talks to: ready jobs in, outcomes out."""

import asyncio
import os
import shlex
import sys
import threading
import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface
from snakemake_interface_executor_plugins.settings import SharedFSUsage
from submitit.core.core import Job

from . import clusters, dryrun, names, outer_job
from .adoption import Adopter
from .command import NestedCommand, check_argument
from .interrupts import Interrupts, Lines
from .registry import Entry, Identity, Registry
from .resources import Allocation
from .settings import ExecutorSettings
from .status import SHORTEST_POLL_SECONDS, Backoff, Outcome, Poller
from .submission import Request, Submitter

PRIVATE = 0o700
"""The mode of a run's folder, with its logs and submissions."""
UNCHECKED = {"pipe", "service", "storage_object"}
"""Outputs that are no files of the shared file system."""
MANY_INPUTS = 20
"""Above this the job's input files are named in a file, not on its command line."""


class Executor(RemoteExecutor):
    """Submits from a thread of its own and polls from RemoteExecutor's."""

    executor_settings: ExecutorSettings
    logger: Any
    _interrupts: Interrupts
    _submitter: Submitter
    _ready = False

    def __post_init__(self) -> None:
        self.logger = Lines(self.logger)
        settings = self.executor_settings
        try:
            settings.check()
            self._check_immediate()
            self._cluster = clusters.cluster(settings)
            jobs = dryrun.jobs_to_submit(self.dag)
            self._check_accounts(jobs)
            self._base = Path(settings.folder).absolute()
            self._check_submissions(jobs)
            for line in names.remarks(jobs, self._cluster.name, self._limits()):
                self.logger.warning(line)
            if settings.dry_run:
                self._print_and_exit(jobs)
            self._cluster.check_programs()
        except WorkflowError as error:
            self.shutdown()
            raise WorkflowError(
                str(error)
            ) from None  # Snakemake prints every place that it came through
        except BaseException:
            self.shutdown()
            raise
        self._start(settings)

    def run_jobs(self, jobs: list[JobExecutorInterface]) -> None:
        """Hands all jobs that are ready to the submitting thread."""
        requests = []
        for job in jobs:
            self.run_job_pre(job)
            try:
                requests.append(self._request(job))
            except WorkflowError as error:
                self.report_job_error(SubmittedJobInfo(job), msg=f"{error} ")
        self._submitter.submit(requests)

    def run_job(self, job: JobExecutorInterface) -> None:
        self.run_jobs([job])

    async def check_active_jobs(
        self, active_jobs: list[SubmittedJobInfo]
    ) -> AsyncGenerator[SubmittedJobInfo, None]:
        """One round; what has not ended is given back."""
        try:
            if self._ready and active_jobs and not self._cancelled:
                self._round([info.aux["job"] for info in active_jobs])
            for info in active_jobs:
                if not self._report(info):
                    yield info
        except Exception as error:
            self._on_crash(error)  # RemoteExecutor prints it before, which may fail
            raise

    def cancel(self) -> None:
        """Also what is being submitted at this moment."""
        if self._ready:
            self._interrupts.ignore()
            self._cancel_all()
        self.shutdown()

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        self._cancel([info.aux["job"] for info in active_jobs])

    def shutdown(self) -> None:
        """Jobs that are still there are left over from an error of the executor itself."""
        if self._ready:
            self._ready = False
            self._submitter.stop()
            self._cancel_open()
            self._interrupts.over()
            self._log_counts()
        super().shutdown()

    async def sleep(self) -> None:
        """Until the next round is due, or something happens that shortens the wait."""
        start = time.monotonic()
        while self.wait and time.monotonic() - start < self._pause_seconds():
            await asyncio.sleep(0.1)

    def get_job_args(self, job: JobExecutorInterface, **kwargs: Any) -> str:
        """Without RemoteExecutor's wait for this process's temporary folder, which a job that
        is taken back by the next workflow would never see."""
        arguments = super(RemoteExecutor, self).get_job_args(job, **kwargs)
        usage = self.workflow.storage_settings.shared_fs_usage
        if SharedFSUsage.INPUT_OUTPUT not in usage:
            return str(arguments)
        files = list(map(str, job.get_wait_for_files()))
        if len(files) <= MANY_INPUTS:
            return f"{arguments} --wait-for-files {shlex.join(files)}" if files else str(arguments)
        path = self._folder / f"{uuid.uuid4().hex}.inputs"
        path.write_text("".join(f"{file}\n" for file in files))
        return f"{arguments} --wait-for-files-file {shlex.quote(str(path))}"

    def additional_general_args(self) -> str:
        """One try in each job: `retries` of a rule would be tried again inside of it, with the resources of the first try. The
        workflow submits a job for each try."""
        return "--preemptible-rules --preemptible-retries 0"

    def get_python_executable(self) -> str:
        """For the shell that runs the job's command."""
        return shlex.quote(super().get_python_executable())

    def get_snakefile(self) -> Path:
        """As a path, which Snakemake quotes for the shell; a text it writes as for Python."""
        return Path(super().get_snakefile())

    def _start(self, settings: ExecutorSettings) -> None:
        if outer := outer_job.leave(os.environ):
            self.logger.warning(
                f"This workflow runs inside job {outer}. The jobs that it submits do not inherit the scheduler's variables of that job."
            )
        # The scheduler carries them, or the process itself: a command, a script or a pickle would show them.
        os.environ.update(self._cluster.declared)
        # Ids of jobs come again: every workflow has its own folder.
        self._folder = self._base / f"{time.strftime('%Y%m%dT%H%M%S')}-{uuid.uuid4().hex[:8]}"
        self._folder.mkdir(mode=PRIVATE, parents=True)
        self._registry = Registry(self._base, self._cluster.name)
        self._registry.compact()
        self._open: dict[str, Job[Any]] = {}
        self._ended: dict[str, tuple[Outcome, float]] = {}
        """Of jobs whose end is not yet reported: until when their output may come."""
        self._lock = threading.Lock()
        self._cancelled = False
        self._started = time.monotonic()
        self._submitted = 0
        self._poller = Poller(self._cluster, self.logger)
        self._backoff = self._make_backoff()
        self._submitter = Submitter(
            self._cluster,
            self._folder,
            self.logger,
            take_back=self._make_adopter().remaining,
            on_submitted=self._on_submitted,
            on_failed=self._on_failed,
            on_crash=self._on_crash,
            open_jobs=lambda: len(self._open),
        )
        self._interrupts = Interrupts(self._on_interrupt)
        self._submitter.start()
        self._ready = True
        self._interrupts.watch()

    def _make_adopter(self) -> Adopter:
        dag_settings = self.workflow.dag_settings
        return Adopter(
            self._registry,
            self._cluster,
            self.logger,
            self._on_adopted,
            finished_too=not (dag_settings.forceall or dag_settings.forcerun),
        )

    def _make_backoff(self) -> Backoff:
        asked = float(self.workflow.remote_execution_settings.seconds_between_status_checks)
        return Backoff.of(asked)

    def _pause_seconds(self) -> float:
        return self._backoff.seconds if self._ready else SHORTEST_POLL_SECONDS

    def _check_immediate(self) -> None:
        if self.workflow.remote_execution_settings.immediate_submit:
            raise WorkflowError(
                "--immediate-submit is not supported: this executor submits a job when its input exists, and monitors it "
                "until it ends. Leave the option out. Nothing was submitted."
            )

    def _limits(self) -> set[str]:
        """Names of resources that the workflow counts itself."""
        return {*self.workflow.global_resources, *self.workflow.resource_scopes}

    def _check_accounts(self, jobs: Sequence[JobExecutorInterface]) -> None:
        settings = self.executor_settings
        if not settings.require_account or settings.account:
            return
        without = sorted({job.name for job in jobs if not Allocation.of(job, settings).account})
        if without:
            raise WorkflowError(
                f"No account is set for {', '.join(without)}, and --submitit-require-account "
                "requires one. Set --submitit-account, SNAKEMAKE_SUBMITIT_ACCOUNT or the "
                "resource account. Nothing was submitted."
            )

    def _check_submissions(self, jobs: Sequence[JobExecutorInterface]) -> None:
        """Raises WorkflowError where a job cannot be written down for the scheduler or for the shell, before
        any is submitted."""
        check_argument(os.path.dirname(sys.executable), "the folder of Snakemake's Python")
        for given in self.workflow.config_settings.config_args or ():
            check_argument(given, "--config", "Write it in a config file")
        if SharedFSUsage.SOURCE_CACHE in self.workflow.storage_settings.shared_fs_usage:
            cache = str(self.workflow.sourcecache.runtime_cache_path)
            check_argument(cache, "Snakemake's cache folder")
        self._cluster.declared = self.envvars()
        torn = [name for name, value in self._cluster.declared.items() if "\n" in value]
        if torn and "qsub" in self._cluster.programs:
            raise WorkflowError(
                f"envvars: {', '.join(torn)} contains a line break, which qsub does not pass to a job. Put it into a file that only "
                "you can read, and the path of the file into the variable."
            )
        for allocation in {Allocation.of(job, self.executor_settings) for job in jobs}:
            self._cluster.executor(self._base, allocation)

    def _print_and_exit(self, jobs: Sequence[JobExecutorInterface]) -> None:
        at_once = self.workflow.resource_settings.nodes
        settings = self.executor_settings
        for text in dryrun.describe(jobs, self._cluster, self._base, settings, at_once):
            print(text)
        print(f"# {len(jobs)} jobs would be submitted to {self._cluster.name}; none was.")
        sys.exit(0)

    def _request(self, job: JobExecutorInterface) -> Request:
        allocation = Allocation.of(job, self.executor_settings)
        command = NestedCommand(
            self.format_job_exec(job),
            str(Path.cwd()),
            allocation.stop_seconds,
            allocation.runtime_min,
        )
        return Request(job, allocation, command, Identity.of(job, allocation))

    def _on_adopted(self, pairs: Sequence[tuple[Request, Job[Any]]]) -> None:
        self._track(pairs)
        for request, job in pairs:
            self.logger.info(
                f"Job {request.job.jobid} ({request.job.name}) was submitted by an earlier "
                f"workflow and is adopted: {self._words(job)}"
            )

    def _on_submitted(self, pairs: Sequence[tuple[Request, Job[Any]]]) -> None:
        self._submitted += len(pairs)
        self._registry.add(
            Entry(self._cluster.name, job.job_id, str(job.paths.folder), request.identity)
            for request, job in pairs
        )
        self._track(pairs)
        for request, job in pairs:
            self.logger.info(f"Job {request.job.jobid} was submitted: {self._words(job)}")

    def _track(self, pairs: Sequence[tuple[Request, Job[Any]]]) -> None:
        with self._lock:
            self._open.update((job.job_id, job) for _, job in pairs)
        for request, job in pairs:
            self.report_job_submission(
                SubmittedJobInfo(request.job, external_jobid=job.job_id, aux={"job": job})
            )
        self._backoff.reset()

    def _on_failed(self, request: Request, words: str) -> None:
        self.report_job_error(
            SubmittedJobInfo(request.job),
            msg=f"{self._cluster.name} did not take the job: {words}. ",
        )

    def _on_crash(self, error: BaseException) -> None:
        # The scheduler is there only when jobs come, not yet when this executor is made.
        if self.workflow.scheduler is not None:
            self.workflow.scheduler.executor_error_callback(error)

    def _on_interrupt(self) -> None:
        self._cancel_all()
        # Snakemake drops a KeyboardInterrupt that comes while it prints.
        self._on_crash(KeyboardInterrupt())

    def _round(self, jobs: Sequence[Job[Any]]) -> None:
        ended = self._poller.ended([job for job in jobs if job.job_id not in self._ended])
        until = time.monotonic() + self.workflow.execution_settings.latency_wait
        self._ended.update((outcome.job.job_id, (outcome, until)) for outcome in ended)
        if not self._ended:
            self._backoff.grow()
            return
        self._backoff.reset()
        self._registry.settle(outcome.job.job_id for outcome in ended)
        with self._lock:
            for outcome in ended:
                self._open.pop(outcome.job.job_id, None)

    def _report(self, info: SubmittedJobInfo) -> bool:
        """Whether the end of the job is told: not while its output may still come."""
        job_id = str(info.external_jobid)
        if job_id not in self._ended:
            return False
        outcome, until = self._ended[job_id]
        missing = [] if outcome.error else self._missing(info.job)
        if missing and time.monotonic() < until:
            return False
        del self._ended[job_id]
        if not (outcome.error or missing):
            self.report_job_success(info)
            return True
        error = outcome.error or (
            f"it ended well, but {', '.join(missing)} is not there. Its log says whether "
            "the node sees the working folder and the job's input; if it does, the file "
            "system is slow: raise --latency-wait"
        )
        paths = outcome.job.paths
        logs = [str(path) for path in (paths.stderr, paths.stdout) if path.exists()]
        self.report_job_error(info, msg=f"{self._words(outcome.job)}: {error}. ", aux_logs=logs)
        return True

    def _missing(self, job: JobExecutorInterface) -> list[str]:
        """What a job that ended well should have made and has not. A nested Snakemake that does not see its input says that there
        is nothing to do."""
        usage = self.workflow.storage_settings.shared_fs_usage
        if job.is_group() or SharedFSUsage.INPUT_OUTPUT not in usage:
            return []
        files = [file for file in job.output if not UNCHECKED & set(getattr(file, "flags", ()))]
        return [str(file) for file in files if not os.path.lexists(file)]

    def _words(self, job: Job[Any]) -> str:
        return f"{self._cluster.name} job {job.job_id}, log {job.paths.stderr}"

    def _cancel_all(self) -> None:
        self._cancelled = True
        self._submitter.stop()
        self._cancel_open()

    def _cancel_open(self) -> None:
        with self._lock:
            jobs = list(self._open.values())
            self._open.clear()
        self._cancel(jobs)

    def _cancel(self, jobs: Sequence[Job[Any]]) -> None:
        """What could not be cancelled stays in the registry for the next workflow."""
        if not jobs:
            return
        errors = self._cluster.cancel(jobs)  # before any word
        self.logger.info(f"{len(jobs)} jobs were cancelled on {self._cluster.name}.")
        if errors:
            self.logger.warning(
                f"Not every job could be cancelled: {'; '.join(errors)}. "
                "The next run of the workflow adopts those that still run."
            )
        else:
            self._registry.settle(job.job_id for job in jobs)

    def _log_counts(self) -> None:
        minutes = (time.monotonic() - self._started) / 60
        if self._submitted:
            self.logger.info(
                f"{self._cluster.name}: {self._submitted} jobs in {self._submitter.submissions} "
                f"submissions, {self._poller.queries} status queries in {minutes:.1f} minutes "
                f"({self._poller.queries / minutes:.1f} a minute)."
            )

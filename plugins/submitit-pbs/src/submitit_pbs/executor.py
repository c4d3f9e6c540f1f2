"""Submits to PBS with qsub."""

from __future__ import annotations

from typing import Any, ClassVar

from submitit.core import core, utils
from submitit.core.core import R

from submitit_pbs import shell
from submitit_pbs.follow_on import current_id
from submitit_pbs.parameters import PbsParameters
from submitit_pbs.script import script
from submitit_pbs.watcher import PbsInfoWatcher
from submitit_qsub import Parameters, QsubExecutor, QsubJob


class PbsJob(QsubJob[R]):
    _interrupt_command: ClassVar[tuple[str, ...]] = ("qsig", "-s", "USR2")
    watcher = PbsInfoWatcher()

    def scheduler_id(self) -> str:
        return current_id(self.paths)


class PbsExecutor(QsubExecutor):
    """submitit's ids are PBS's sequence numbers without the server: `123` is 123.server, `123_0` is 123[0].server."""

    job_class: type[core.Job[Any]] = PbsJob
    parameters_class: ClassVar[type[Parameters]] = PbsParameters
    own_program: ClassVar[str] = "pbsnodes"
    host: ClassVar[str] = "a host with PBS's commands on its PATH"
    id_pattern: ClassVar[str] = r"^(\d+)(\[\])?(\.\S+)?$"

    def _internal_process_submissions(
        self, delayed_submissions: list[utils.DelayedSubmission]
    ) -> list[core.Job[Any]]:
        shell.write(self.folder)
        return super()._internal_process_submissions(delayed_submissions)

    def _make_submission_file_text(self, command: str, uid: str) -> str:
        return script(self.asked, command, self.folder, self._array_size)

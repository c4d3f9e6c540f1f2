"""A workflow that is itself started inside a job: what the scheduler said to that job is not for the jobs that it submits."""

from __future__ import annotations

import re
from collections.abc import MutableMapping

OUTER = {
    "SLURM_JOB_ID": re.compile(r"SLURM_.*|SLURMD_.*|S(BATCH|RUN)_(CPU|MEM)_BIND.*"),
    "PBS_JOBID": re.compile(r"PBS_.*"),
    "JOB_ID": re.compile(r"SGE_.*|JOB_(ID|NAME|SCRIPT)|PE(_HOSTFILE)?|N(SLOTS|HOSTS|QUEUES)|RESTARTED|QUEUE|REQUEST"),
}  # fmt: skip
"""By a variable that every job of the scheduler has: the variables that it sets in jobs. `sbatch` and `srun` read some of them as
options (`SLURM_MEM_PER_CPU` beside the `SLURM_MEM_PER_NODE` of the new job is fatal). Those that users set (`SBATCH_ACCOUNT`) stay."""
OF_THE_SITE = re.compile(
    r"SLURM_(CONF|CLUSTERS|JWT|TIME_FORMAT)"
    r"|PBS_(CONF_FILE|CONF|EXEC|HOME|SERVER|DEFAULT|DPREFIX)"
    r"|SGE_(ROOT|CELL|CLUSTER_NAME|QMASTER_PORT|EXECD_PORT)"
)
"""Where the scheduler is, which its commands need."""


def leave(environment: MutableMapping[str, str]) -> str | None:
    """Forget the job that this process runs in. Returns its id, or None outside of a job."""
    for mark, told in OUTER.items():
        if mark not in environment or (mark == "JOB_ID" and "SGE_ROOT" not in environment):
            continue
        job = environment[mark]
        for name in [*environment]:
            if told.fullmatch(name) and not OF_THE_SITE.fullmatch(name):
                del environment[name]
        return job
    return None

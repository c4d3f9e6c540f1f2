"""The settings of the Grid Engine cell, in Grid Engine's own words."""

from __future__ import annotations

from collections.abc import Mapping

from tests.cluster.commands import ClusterError

SLOTS = 16
QUEUE = "main.q"
NOTIFY = "00:00:05"
"""Between a job's warning and its end."""
PARALLEL_ENVIRONMENTS = {"mpi": "$fill_up", "spread": "$round_robin", "smp": "$pe_slots"}
CONSUMABLES = {"gpu": 4, "rt_F": 4}
"""What a job can ask for with -l, counted once for the job, and how much of it the host has."""

COMPLEXES = "".join(f"{name} {name} INT <= YES JOB 0 0\n" for name in CONSUMABLES)
BOOTSTRAP = {
    "admin_user": "root",
    "default_domain": "none",
    "ignore_fqdn": "false",
    "spooling_method": "berkeleydb",
    "spooling_lib": "libspoolb",
    "binary_path": "/usr/sbin",
    "security_mode": "none",
    "listener_threads": "2",
    "worker_threads": "2",
    "scheduler_threads": "1",
}
GLOBAL = {
    "mailer": "/bin/true",
    "min_uid": "0",
    "min_gid": "0",
    "load_report_time": "00:00:02",
    # One group for each job that runs, so that its processes can be counted.
    "gid_range": "64000-65500",
    "reporting_params": "accounting=true reporting=false flush_time=00:00:01 "
    "accounting_flush_time=00:00:00 joblog=false sharelog=00:00:00",
}
SCHEDULER = {
    "schedule_interval": "0:0:1",
    "flush_submit_sec": "1",
    "flush_finish_sec": "1",
    "job_load_adjustments": "NONE",
}
HOST = {
    "load_scaling": "NONE",
    "user_lists": "NONE",
    "xuser_lists": "NONE",
    "projects": "NONE",
    "xprojects": "NONE",
    "usage_scaling": "NONE",
    "report_variables": "NONE",
}
PARALLEL = {
    "slots": str(SLOTS),
    "user_lists": "NONE",
    "xuser_lists": "NONE",
    "start_proc_args": "NONE",
    "stop_proc_args": "NONE",
    "control_slaves": "TRUE",
    "job_is_first_task": "FALSE",
    "urgency_slots": "min",
    "accounting_summary": "FALSE",
    "qsort_args": "NONE",
}
QUEUE_SETTINGS = {
    "qname": QUEUE,
    "hostlist": "@allhosts",
    # A busy machine would otherwise take no more jobs.
    "load_thresholds": "NONE",
    "pe_list": " ".join(PARALLEL_ENVIRONMENTS),
    "rerun": "TRUE",
    "slots": str(SLOTS),
    "shell": "/bin/sh",
    "notify": NOTIFY,
}


def changed(text: str, settings: Mapping[str, str]) -> str:
    """`text`, a line of name and value for every setting, with other values for some."""
    lines = (line.split(maxsplit=1) for line in text.splitlines() if not line.startswith("#"))
    known = {fields[0]: fields[1] for fields in lines if len(fields) == 2}
    if unknown := settings.keys() - known.keys():
        raise ClusterError(f"Grid Engine has no setting {', '.join(sorted(unknown))}")
    return table({**known, **settings})


def table(settings: Mapping[str, str]) -> str:
    return "".join(f"{name} {value}\n" for name, value in settings.items())

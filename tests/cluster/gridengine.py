"""A Grid Engine cell on this machine: one host with many slots."""

from __future__ import annotations

import socket
import time
from pathlib import Path

from tests.cluster.cluster import Cluster
from tests.cluster.commands import check, free_ports, poll, run, said
from tests.cluster.gridengine_conf import (
    BOOTSTRAP,
    COMPLEXES,
    CONSUMABLES,
    GLOBAL,
    HOST,
    PARALLEL,
    PARALLEL_ENVIRONMENTS,
    QUEUE,
    QUEUE_SETTINGS,
    SCHEDULER,
    changed,
    table,
)

PROGRAMS = Path("/usr/lib/gridengine")
SHARED = Path("/usr/share/gridengine")
IN_FOREGROUND = {"SGE_ND": "true"}
PORTS = ("SGE_QMASTER_PORT", "SGE_EXECD_PORT")


class GridEngine(Cluster):
    name = "gridengine"
    programs = ("sge_qmaster", "sge_execd", "qsub", "qconf")
    controller = "sge_qmaster"
    job_variable = "JOB_ID"
    job_guard = "sge_shepherd"

    def environment(self) -> dict[str, str]:
        ports = zip(PORTS, self._ports().read_text().split(), strict=True)
        return {"SGE_ROOT": str(self.folder), "SGE_CELL": "default", **dict(ports)}

    def healthy(self) -> bool:
        return self._configured() and bool(self.daemons.running()) and not self._queue_missing()

    def _configured(self) -> bool:
        return self._ports().exists()

    def _ports(self) -> Path:
        return self.folder / "ports"

    def _start(self) -> None:
        self._lay_out_root()
        self._write_cell()
        self._fill_spool()
        environment = {**self.environment(), **IN_FOREGROUND}
        master = self.daemons.start("sge_qmaster", ["sge_qmaster"], environment)
        self.daemons.wait_for(master, self._master_missing)
        self._configure()
        execd = self.daemons.start("sge_execd", ["sge_execd"], environment)
        self.daemons.wait_for(execd, self._queue_missing)

    def _cancel_jobs(self) -> None:
        run(["qdel", "-u", "*"], self.environment(), 10)
        poll(lambda: not self._jobs(), timeout_s=10, interval_s=0.2)

    def _jobs(self) -> str:
        return run(["qstat", "-u", "*"], self.environment(), 10).stdout.strip()

    def _master_missing(self) -> str:
        done = run(["qconf", "-sh"], self.environment(), 10)
        return "" if done.returncode == 0 else f"qconf says {said(done)}"

    def _queue_missing(self) -> str:
        """Empty once the queue's host reports its load and the queue has no bad state."""
        done = run(["qstat", "-f", "-q", QUEUE], self.environment(), 10)
        instances = [line.split() for line in done.stdout.splitlines() if f"{QUEUE}@" in line]
        well = instances and all(len(fields) == 5 and fields[3] != "-NA-" for fields in instances)
        return "" if well else f"qstat says {said(done)}"

    def _lay_out_root(self) -> None:
        architecture = check([str(SHARED / "util" / "arch")], {}).strip()
        for name in ("bin", "lib", "utilbin"):
            (self.folder / name).mkdir()
            (self.folder / name / architecture).symlink_to(PROGRAMS)
        (self.folder / "util").symlink_to(SHARED / "util")
        for name in ("master", "execd", "spool", "qconf"):
            (self.folder / name).mkdir()

    def _write_cell(self) -> None:
        host = socket.gethostname()
        common = self.folder / "default" / "common"
        common.mkdir(parents=True)
        (common / "act_qmaster").write_text(f"{host}\n")
        (common / "host_aliases").write_text(f"{host} localhost\n")
        folders = {
            "spooling_params": str(self.folder / "spool"),
            "qmaster_spool_dir": str(self.folder / "master"),
        }
        (common / "bootstrap").write_text(table({**BOOTSTRAP, **folders}))
        # Ids go on from cell to cell, so that no job finds the files of an earlier one.
        first_job = 1 + int(time.time()) % 9_000_000
        (self.folder / "master" / "jobseqnum").write_text(f"{first_job}\n")
        self._ports().write_text(" ".join(map(str, free_ports(len(PORTS)))))

    def _fill_spool(self) -> None:
        spool = str(self.folder / "spool")
        self._spool("spoolinit", "berkeleydb", "libspoolb", spool, "init")
        packaged = (SHARED / "default-configuration").read_text()
        settings = {**GLOBAL, "execd_spool_dir": str(self.folder / "execd")}
        configuration = self._file("global", changed(packaged, settings))
        resources = SHARED / "util" / "resources"
        self._spool("spooldefaults", "configuration", configuration)
        self._spool("spooldefaults", "complexes", str(resources / "centry"))
        self._spool("spooldefaults", "usersets", str(resources / "usersets"))
        self._spool("spooldefaults", "managers", "root")

    def _spool(self, program: str, *arguments: str) -> None:
        check([str(PROGRAMS / program), *arguments], self.environment())

    def _configure(self) -> None:
        """Tell the running master of its host, parallel environments and queue."""
        host = socket.gethostname()
        values = ",".join(f"{name}={count}" for name, count in CONSUMABLES.items())
        self._set("-Mc", "complexes", self._get("-sc") + COMPLEXES)
        self._set("-Msconf", "scheduler", changed(self._get("-ssconf"), SCHEDULER))
        self._set("-Ae", "host", table({**HOST, "hostname": host, "complex_values": values}))
        self._set("-Ahgrp", "hosts", table({"group_name": "@allhosts", "hostlist": host}))
        for name, allocation in PARALLEL_ENVIRONMENTS.items():
            own = {"pe_name": name, "allocation_rule": allocation}
            self._set("-Ap", name, table({**own, **PARALLEL}))
        self._set("-Aq", "queue", changed(self._get("-sq"), QUEUE_SETTINGS))
        check(["qconf", "-as", host], self.environment())

    def _get(self, option: str) -> str:
        return check(["qconf", option], {**self.environment(), "SGE_SINGLE_LINE": "1"})

    def _set(self, option: str, name: str, text: str) -> None:
        check(["qconf", option, self._file(name, text)], self.environment())

    def _file(self, name: str, text: str) -> str:
        """Grid Engine takes its settings from real files only."""
        path = self.folder / "qconf" / name
        path.write_text(text)
        return str(path)

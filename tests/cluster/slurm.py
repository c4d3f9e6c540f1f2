"""A Slurm of three emulated nodes on this machine, with munge and accounting of its own."""

from __future__ import annotations

import getpass
import os
import signal
from contextlib import suppress
from itertools import product
from pathlib import Path

from tests.cluster.cluster import Cluster
from tests.cluster.commands import check, free_ports, poll, run, said
from tests.cluster.processes import Process, processes_with
from tests.cluster.slurm_conf import GPUS_PER_NODE, NODES, gres_conf, slurm_conf, slurmdbd_conf

NODE = "SLURMD_NODENAME"
"""Set by Slurm in every process of a job, and here in the daemons of the node."""
READY_STATES = {"idle", "mixed", "allocated", "completing"}


class Slurm(Cluster):
    name = "slurm"
    programs = ("munged", "mariadbd", "mariadb-install-db", "slurmdbd", "slurmctld", "slurmd")
    controller = "slurmctld"
    job_variable = "SLURM_JOB_ID"
    job_guard = "slurmstepd"

    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def healthy(self) -> bool:
        return self._configured() and bool(self.daemons.running()) and not self._nodes_missing()

    def kill_node(self, node: str) -> None:
        """As a loss of power does: its daemon and what watches over its jobs, before these can tell of it, and all of the jobs."""
        found = processes_with({**self.environment(), NODE: node})
        for process in sorted(found, key=lambda each: each.name not in ("slurmd", self.job_guard)):
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)

    def miss_node(self, node: str) -> None:
        """What Slurm does by itself when a node has been silent for five minutes (SlurmdTimeout)."""
        down = ["scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=killed"]
        check(down, self.environment())

    def start_node(self, node: str) -> None:
        """It takes jobs again as soon as its daemon says so (ReturnToService)."""
        self.daemons.wait_for(self._start_node(node), self._nodes_missing)

    def _configured(self) -> bool:
        return (self.folder / "slurm.conf").exists()

    def _start(self) -> None:
        self._write_configuration()
        self._start_munge()
        self._start_database()
        self._start_accounting()
        self._start_nodes()

    def _cancel_jobs(self) -> None:
        mine = ["scancel", f"--user={getpass.getuser()}"]
        run([*mine, "--full", "--signal=KILL", "--state=RUNNING"], self.environment(), 10)
        run(mine, self.environment(), 10)
        poll(lambda: not self._jobs(), timeout_s=15, interval_s=0.2)

    def _jobs(self) -> str:
        return run(["squeue", "--noheader"], self.environment(), 10).stdout.strip()

    def _nodes_missing(self) -> str:
        command = ["sinfo", "--noheader", "--Node", "--partition=main", "--format=%N %T"]
        done = run(command, self.environment(), 10)
        nodes = [line.split() for line in done.stdout.splitlines()]
        up = {node for node, state in nodes if state in READY_STATES}
        return "" if up == set(NODES) else f"sinfo says {said(done)}"

    def _write_configuration(self) -> None:
        for name in ("munge", "mysql", "state", "gpus"):
            (self.folder / name).mkdir()
        for node, gpu in product(NODES, range(GPUS_PER_NODE)):
            # Slurm hands out only what is a device.
            (self.folder / "gpus" / f"{node}-{gpu}").symlink_to("/dev/null")
        controller, accounting, *nodes = free_ports(2 + len(NODES))
        self._write_secret("munge.key", os.urandom(128))
        self._write_secret("slurmdbd.conf", slurmdbd_conf(self.folder, accounting).encode())
        (self.folder / "gres.conf").write_text(gres_conf(self.folder))
        text = slurm_conf(self.folder, controller, accounting, nodes)
        (self.folder / "slurm.conf").write_text(text)

    def _write_secret(self, name: str, content: bytes) -> None:
        """A file that the daemons accept only if nobody else can read it."""
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_bytes(content)

    def _start_munge(self) -> None:
        socket = self.folder / "munge" / "socket"
        # Forced, because the folder above may be writable for everybody.
        command = ["munged", "--foreground", "--force", "--num-threads=10", f"--socket={socket}"]
        files = {"key": "munge.key", "pid": "munge/pid", "seed": "munge/seed", "log": "munge/log"}
        command += [f"--{kind}-file={self.folder / file}" for kind, file in files.items()]
        process = self.daemons.start("munged", command, {})
        self.daemons.wait_for(process, lambda: _absent(socket))

    def _start_database(self) -> None:
        socket = self._database_socket()
        common = ["--no-defaults", "--user=root", f"--datadir={self.folder / 'mysql'}"]
        check(["mariadb-install-db", *common, "--skip-test-db"], {})
        command = ["mariadbd", *common, "--skip-networking", f"--socket={socket}"]
        command += [f"--pid-file={self.folder / 'mysql' / 'pid'}", "--innodb-buffer-pool-size=64M"]
        command += ["--innodb-lock-wait-timeout=900", "--innodb-flush-log-at-trx-commit=0"]
        process = self.daemons.start("mariadbd", command, {})
        self.daemons.wait_for(process, lambda: _absent(socket))

    def _start_accounting(self) -> None:
        environment = {**self.environment(), "MYSQL_UNIX_PORT": str(self._database_socket())}
        process = self.daemons.start("slurmdbd", ["slurmdbd", "-D"], environment)
        self.daemons.wait_for(process, self._accounting_missing)
        check(["sacctmgr", "--immediate", "add", "cluster", "ckptbench"], self.environment())

    def _accounting_missing(self) -> str:
        done = run(["sacctmgr", "--noheader", "list", "cluster"], self.environment(), 5)
        return "" if done.returncode == 0 else f"sacctmgr says {said(done)}"

    def _start_nodes(self) -> None:
        environment = self.environment()
        controller = self.daemons.start("slurmctld", ["slurmctld", "-D"], environment)
        for node in NODES:
            self._start_node(node)
        self.daemons.wait_for(controller, self._nodes_missing)

    def _start_node(self, node: str) -> Process:
        command = ["slurmd", "-D", "-N", node]
        return self.daemons.start(node, command, {**self.environment(), NODE: node})

    def _database_socket(self) -> Path:
        return self.folder / "mysql" / "socket"


def _absent(path: Path) -> str:
    return "" if path.exists() else f"{path} is not there yet"

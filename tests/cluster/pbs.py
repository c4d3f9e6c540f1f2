"""An OpenPBS on this machine: a server and two execution hosts, in namespaces of their own.

Debian has no package of it. It is unpacked from a folder that a variable names, into the cluster's
own folder; in the namespaces that folder lies where PBS was built to lie.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil

from tests.cluster.cluster import INSTALL, Cluster
from tests.cluster.commands import PATIENCE_S, ClusterError, check, poll, run, said
from tests.cluster.pbs_conf import (
    CLIENT,
    HOMES,
    MOM_CONFIG,
    MOM_FOLDERS,
    NAMESPACE,
    NODES,
    PREFIX,
    PROGRAMS,
    SERVER,
    SETTINGS,
    hosts,
    node_conf,
    server_conf,
)
from tests.cluster.processes import Process, start_ticks

VARIABLE = "CKPTBENCH_OPENPBS"
"""Names a folder with `openpbs-*.tar.xz`, whose only entry is the folder `pbs`. Unset: no test with PBS is selected."""
LIBRARIES = ("libcjson.so.1", "libedit.so.2", "libhwloc.so.15", "libical.so.3", "libpq.so.5")
PROFILES = Path("/etc/profile.d")


def archive() -> Path | None:
    """The newest built OpenPBS that there is."""
    folder = os.environ.get(VARIABLE)
    return max(Path(folder).glob("openpbs-*.tar.xz"), default=None) if folder else None


class Pbs(Cluster):
    name = "pbs"
    programs = ("unshare", "nsenter", "ip", "psql", "pg_config", "tclsh8.6", "xz")
    controller = "pbs_server"
    job_variable = "PBS_JOBID"
    job_guard = "pbs_mom"

    @classmethod
    def obstacle(cls) -> str:
        if archive() is None:
            return f"{VARIABLE} names no folder with openpbs-*.tar.xz: set it to the folder of a built one"
        if missing := super().obstacle():
            return missing
        known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True)
        absent = [library for library in LIBRARIES if library not in known.stdout]
        return f"{', '.join(absent)} not installed: run {INSTALL}" if absent else ""

    def environment(self) -> dict[str, str]:
        own = f"{self.folder / 'bin'}:"
        return {"PATH": own + os.environ["PATH"].removeprefix(own)}

    def healthy(self) -> bool:
        return self._configured() and bool(self.daemons.running()) and not self._nodes_missing()

    def inside(self, *command: str, host: str = SERVER) -> list[str]:
        """A command that runs `command` as a process of `host`."""
        enter = ["nsenter", f"--target={self._namespace().pid}", "--net", "--uts", "--mount"]
        if host != SERVER:
            named = f'hostname {host}; exec "$@"'
            command = ("unshare", "--uts", "sh", "-c", named, "sh", *command)
        return [*enter, *command]

    def manage(self, *settings: str) -> None:
        """Give the server settings, in qmgr's words."""
        for setting in settings:
            check(["qmgr", "-c", setting], self.environment())

    def start_server(self) -> None:
        """Start it and wait until it takes jobs."""
        server = self._daemon(self.controller, SERVER, "-N")
        self.daemons.wait_for(server, self._server_missing)

    def stop_server(self) -> None:
        """Its jobs, and all other daemons, go on."""
        for process in self.daemons.running():
            if process.name == self.controller:
                process.end(grace_s=PATIENCE_S)

    def kill_node(self, node: str) -> None:
        """As a loss of power does: its daemon, and all that the daemon has started."""
        (mom,) = (each for each in self.daemons.running() if each.name == f"pbs_mom-{node}")
        daemon = psutil.Process(mom.pid)
        for process in [daemon, *daemon.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def start_node(self, node: str) -> None:
        mom = self._daemon("pbs_mom", node, "-N")
        self.daemons.wait_for(mom, self._nodes_missing)

    def _configured(self) -> bool:
        return (self.folder / "namespace").exists()

    def _start(self) -> None:
        self._write_configuration()
        self._enter_namespaces()
        conf = {"PBS_CONF_FILE": str(self._conf(SERVER))}
        check(self.inside(str(PREFIX / "libexec" / "pbs_habitat")), conf)
        self._daemon("pbs_comm", SERVER, "-N")
        self._daemon("pbs_sched", SERVER, "-N")
        self.start_server()
        self.manage(*SETTINGS)
        for node in NODES:
            mom = self._daemon("pbs_mom", node, "-N")
        self.daemons.wait_for(mom, self._nodes_missing)

    def _cancel_jobs(self) -> None:
        """Not asked for: every process of a job ends with the namespaces."""

    def _end_leftovers(self) -> None:
        """Every process of the namespaces: the data store, and what left its job."""
        network = (self.folder / "namespace").read_text()

        def none_left() -> bool:
            left = _processes_in(network)
            for process in left:  # again, for one may have started another meanwhile
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            return not left

        poll(none_left)

    def _server_missing(self) -> str:
        done = run(["qstat", "-B"], self.environment(), 10)
        return "" if done.returncode == 0 else f"qstat says {said(done)}"

    def _nodes_missing(self) -> str:
        done = run(["pbsnodes", "-a"], self.environment(), 10)
        states = [line.split()[-1] for line in done.stdout.splitlines() if " state = " in line]
        well = len(states) == len(NODES) and not {"down", "unknown"} & set(
            ",".join(states).split(",")
        )
        return "" if well and done.returncode == 0 else f"pbsnodes says {said(done)}"

    def _write_configuration(self) -> None:
        # Users of jobs, and the user of the database, must find their files here.
        self.folder.chmod(0o755)
        found = archive()
        assert found is not None
        check(["tar", "-C", str(self.folder), "-xJf", str(found)], {})
        (self.folder / "pbs" / "sbin" / "pbs_iff").chmod(0o4755)
        (self.folder / "hosts").write_text(hosts(Path("/etc/hosts").read_text()))
        sockets = self.folder / "sockets"
        sockets.mkdir()
        sockets.chmod(0o1777)
        profiles = self.folder / "profile.d"
        shutil.copytree(PROFILES, profiles)
        shutil.copy(self.folder / "pbs" / "etc" / "pbs.sh", profiles)
        # Grid Engine's commands have the same names, and lie in a folder that /etc/profile names.
        (profiles / "pbs-first.sh").write_text(f"PATH={PREFIX}/bin:$PATH\n")
        self._conf(SERVER).write_text(server_conf())
        for node in NODES:
            self._conf(node).write_text(node_conf(node))
            self._lay_out_node(self.folder / "pbs" / HOMES / node)

    def _lay_out_node(self, home: Path) -> None:
        home.mkdir(parents=True)
        for name, mode in MOM_FOLDERS.items():
            (home / name).mkdir()
            (home / name).chmod(mode)
        (home / "mom_priv" / "config").write_text(MOM_CONFIG)
        # Jobs find their server by it.
        settings = [f"PBS_CONF_FILE={self._conf(SERVER)}", f"PATH={PREFIX}/bin:/usr/bin:/bin"]
        # All hosts have their addresses on this machine: an mpiexec over several would take each for its own.
        settings.append("HYDRA_LAUNCHER_AUTOFORK=0")
        (home / "pbs_environment").write_text("".join(f"{line}\n" for line in settings))

    def _enter_namespaces(self) -> None:
        unshare = ["unshare", "--net", "--uts", "--mount"]
        command = [*unshare, "sh", "-c", NAMESPACE, "sh", str(self.folder)]
        first = self.daemons.start("namespace", command, {})
        entered = self.folder / "entered"
        self.daemons.wait_for(first, lambda: "" if entered.exists() else "its mounts")
        (self.folder / "namespace").write_text(os.readlink(f"/proc/{first.pid}/ns/net"))
        client = CLIENT.format(prefix=PREFIX, conf=self._conf(SERVER), namespace=first.pid)
        (self.folder / "bin").mkdir()
        for program in PROGRAMS:
            path = self.folder / "bin" / program
            path.write_text(client)
            path.chmod(0o755)

    def _daemon(self, program: str, host: str, *options: str) -> Process:
        command = self.inside(str(PREFIX / "sbin" / program), *options, host=host)
        name = program if host == SERVER else f"{program}-{host}"
        return self.daemons.start(name, command, {"PBS_CONF_FILE": str(self._conf(host))})

    def _conf(self, host: str) -> Path:
        return self.folder / f"{host}.conf"

    def _namespace(self) -> Process:
        for process in self.daemons.running():
            if process.name == "namespace":
                return process
        raise ClusterError(f"{self.name}: not running in {self.folder}")


def _processes_in(network: str) -> list[int]:
    """Those that live in a network namespace, which is named as the kernel names it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            if os.readlink(entry / "ns" / "net") == network and start_ticks(int(entry.name)):
                found.append(int(entry.name))
    return found

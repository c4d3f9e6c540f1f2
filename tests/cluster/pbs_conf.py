"""The settings of the PBS server and its hosts, in PBS's own words."""

from __future__ import annotations

from pathlib import Path

SERVER = "pbs0"
NODES = ("pbsn1", "pbsn2")
ADDRESSES = {SERVER: "10.255.0.1", NODES[0]: "10.255.0.11", NODES[1]: "10.255.0.12"}
"""In a network namespace of their own. PBS takes no host on 127.*."""
CPUS_PER_NODE = 8
QUEUE = "rt_HF"
"""Named as on ABCI 3.0. As there, the queue says what a node is."""
SOCKETS = "/run/postgresql"
"""Where Debian's PostgreSQL has its sockets."""
PREFIX = Path("/opt/pbs")
"""Where it was built to lie."""
HOMES = "homes"
"""The folder in it with the files of each host. PBS takes none below a folder, such as /tmp, that others
may write to."""

# Hosts share one network, so that each pbs_mom has ports of its own.
MOM_PORTS = {node: 15102 + 100 * number for number, node in enumerate(NODES)}

MOM_FOLDERS = {
    "aux": 0o755,
    "checkpoint": 0o700,
    "mom_logs": 0o755,
    "mom_priv": 0o751,
    "mom_priv/jobs": 0o751,
    "mom_priv/hooks": 0o750,
    "mom_priv/hooks/tmp": 0o750,
    "spool": 0o1777,
    "undelivered": 0o1777,
}
"""And their modes, on which pbs_mom insists."""

# Limits are looked at every second, and files are copied as what they are: all hosts share them.
MOM_CONFIG = f"""\
$clienthost {SERVER}
$usecp *:/ /
$min_check_poll 1
$max_check_poll 2
"""

NAMESPACE = f"""\
set -eu
hostname {SERVER}
ip link set lo up
for address in {" ".join(ADDRESSES.values())}; do ip address add $address/32 dev lo; done
mkdir -p {PREFIX}
mount --bind "$1/pbs" {PREFIX}
mount --bind "$1/hosts" /etc/hosts
mount --bind "$1/profile.d" /etc/profile.d
# The data store's socket has a fixed name: another PBS on this machine must not find it.
mkdir -p {SOCKETS}
mount --bind "$1/sockets" {SOCKETS}
touch "$1/entered"
exec sleep infinity
"""
"""What the first process in the namespaces does there; its argument is the cluster's folder."""

CLIENT = """\
#!/bin/sh
# A job is in the namespaces already.
program={prefix}/bin/${{0##*/}}
[ -z "${{PBS_ENVIRONMENT:-}}" ] || exec "$program" "$@"
export PBS_CONF_FILE={conf}
exec nsenter --target={namespace} --net --uts --mount --wdns="$PWD" "$program" "$@"
"""
"""A client's command, under the name of the program that it runs."""
PROGRAMS = ("qsub", "qstat", "qdel", "qrerun", "qrls", "qsig", "qmgr", "qselect", "pbsnodes")

SETTINGS = (
    *(f"create node {node} Mom={node},port={MOM_PORTS[node]}" for node in NODES),
    *(f"set node {node} resources_available.ncpus={CPUS_PER_NODE}" for node in NODES),
    f"create queue {QUEUE} queue_type=execution,enabled=true,started=true",
    f"set queue {QUEUE} default_chunk.ncpus={CPUS_PER_NODE}",
    "set server job_history_enable=true",
    "set server flatuid=true",
    "set server acl_roots += root@*",
    "set server scheduler_iteration=5",
)


def server_conf() -> str:
    return _conf(SERVER, PBS_START_SERVER=1, PBS_START_SCHED=1, PBS_START_COMM=1)


def node_conf(node: str) -> str:
    port = MOM_PORTS[node]
    ports = {"PBS_MOM_SERVICE_PORT": port, "PBS_MANAGER_SERVICE_PORT": port + 1}
    return _conf(node, PBS_START_MOM=1, **ports)


def _conf(host: str, **settings: int) -> str:
    parts = ("SERVER", "SCHED", "COMM", "MOM")
    values: dict[str, object] = {
        "PBS_EXEC": PREFIX,
        "PBS_HOME": PREFIX / HOMES / host,
        "PBS_SERVER": SERVER,
        "PBS_LEAF_NAME": host,
        "PBS_CORE_LIMIT": "unlimited",
        **{f"PBS_START_{part}": 0 for part in parts},
        **settings,
    }
    return "".join(f"{name}={value}\n" for name, value in values.items())


def hosts(own: str) -> str:
    """What stands in for /etc/hosts, whose text is `own`."""
    return own + "".join(f"{address} {host}\n" for host, address in ADDRESSES.items())

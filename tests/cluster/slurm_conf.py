"""The configuration files of the emulated Slurm."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from pathlib import Path

NODES = ("node1", "node2", "node3")
GPUS_PER_NODE = 2
CPUS_PER_NODE = 16
MEMORY_PER_NODE_MB = 16000
PREEMPTION_GRACE_S = 600
"""It costs nothing where a job stops in time, and a machine under load may need it."""


def gres_conf(folder: Path) -> str:
    last = GPUS_PER_NODE - 1
    return "".join(
        f"NodeName={node} Name=gpu File={folder}/gpus/{node}-[0-{last}]\n" for node in NODES
    )


def slurmdbd_conf(folder: Path, port: int) -> str:
    return f"""\
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
DbdHost=localhost
DbdPort={port}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_acct_db
PidFile={folder}/slurmdbd.pid
"""


def slurm_conf(folder: Path, controller: int, accounting: int, nodes: Sequence[int]) -> str:
    """Nodes and partitions; `controller`, `accounting` and `nodes` are ports."""
    return _daemons(folder, controller, accounting) + _scheduling() + _layout(nodes)


def _daemons(folder: Path, controller: int, accounting: int) -> str:
    return f"""\
ClusterName=ckptbench
SlurmctldHost={socket.gethostname()}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
AuthType=auth/munge
# A credential that lives longer delays every requeue by its life.
AuthInfo=socket={folder}/munge/socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ReturnToService=2
MailProg=/bin/true
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=2
JobAcctGatherParams=OverMemoryKill
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort={accounting}
AccountingStoragePass={folder}/munge/socket
AccountingStorageTRES=gres/gpu
"""


def _scheduling() -> str:
    # Ids go on from cluster to cluster, so that no job finds the files of an earlier one.
    first_job = 1 + int(time.time()) % 60_000_000
    return f"""\
FirstJobId={first_job}
MaxArraySize=4001
MaxJobCount=20000
MessageTimeout=30
KillWait=5
SchedulerType=sched/backfill
SchedulerParameters=requeue_delay=1,bf_interval=1,batch_sched_delay=0,sched_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
"""


def _layout(ports: Sequence[int]) -> str:
    names = f"{NODES[0][:-1]}[1-{len(NODES)}]"
    memory_per_cpu_mb = MEMORY_PER_NODE_MB // CPUS_PER_NODE
    partition = f"Nodes=ALL MaxTime=INFINITE DefMemPerCPU={memory_per_cpu_mb}"
    return f"""\
# Together the nodes claim more than this machine has.
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName={names} NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 \
Port=[{",".join(map(str, ports))}] CPUs={CPUS_PER_NODE} RealMemory={MEMORY_PER_NODE_MB} \
Gres=gpu:{GPUS_PER_NODE} State=UNKNOWN
PartitionName=main {partition} Default=YES PriorityTier=1 PreemptMode=REQUEUE \
GraceTime={PREEMPTION_GRACE_S}
PartitionName=urgent {partition} PriorityTier=10 PreemptMode=OFF
"""

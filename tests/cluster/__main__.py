"""Schedulers by hand: `python -m tests.cluster up|down|env|status slurm|gridengine|pbs`.

`up` leaves the cluster running and prints the variables of its clients, for a shell to evaluate.
"""

from __future__ import annotations

import argparse
import shlex
import sys

from tests.cluster.cluster import Cluster
from tests.cluster.commands import ClusterError
from tests.cluster.gridengine import GridEngine
from tests.cluster.pbs import Pbs
from tests.cluster.slurm import Slurm

CLUSTERS: dict[str, type[Cluster]] = {"slurm": Slurm, "gridengine": GridEngine, "pbs": Pbs}


def up(cluster: Cluster) -> None:
    if not cluster.healthy():
        cluster.start()
    print_environment(cluster)


def down(cluster: Cluster) -> None:
    cluster.stop()


def print_environment(cluster: Cluster) -> None:
    if not cluster.daemons.running():
        raise ClusterError(f"not running: start it with python -m tests.cluster up {cluster.name}")
    for name, value in cluster.environment().items():
        print(f"export {name}={shlex.quote(value)}")


def status(cluster: Cluster) -> None:
    if not cluster.healthy():
        raise ClusterError("not running, or not well")
    print(f"{cluster.name}: running in {cluster.folder}")


ACTIONS = {"up": up, "down": down, "env": print_environment, "status": status}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("action", choices=ACTIONS)
    parser.add_argument("cluster", choices=CLUSTERS)
    arguments = parser.parse_args()
    try:
        ACTIONS[arguments.action](CLUSTERS[arguments.cluster].by_hand())
    except ClusterError as error:
        print(f"{arguments.cluster}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

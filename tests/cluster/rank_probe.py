"""A rank that trains nothing: it takes its place, notes what it found there, and acts as the test wants.

Run as `python rank_probe.py FOLDER ACCELERATOR ACTS`, by the Python of any environment.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from ckptbench.common.errors import CkptbenchError
from ckptbench.common.processes import die_with_parent, ignore_stop_signals
from ckptbench.run.control.joining import join_ranks
from ckptbench.run.control.variables import LOGS, TOKEN, read_assignment
from ckptbench.training.rank import log_to

LONG_S = 900
"""Longer than any test waits for this rank's end."""
LAST_WORDS = "the reason why it died"


def main() -> int:
    folder, accelerator, acts = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    assignment, _ = read_assignment()
    die_with_parent()
    ignore_stop_signals()
    log_to(Path(os.environ[LOGS]) / f"rank-{assignment.rank}.log")
    act = acts.get(str(assignment.rank), acts["others"])
    if act == "vanish":
        return 0
    if act == "sleep":
        time.sleep(LONG_S)
    try:
        place, link = join_ranks(accelerator=accelerator)
    except CkptbenchError as error:
        print(f"{type(error).__name__}: {error}")
        return 1
    found = {
        "rank": place.rank,
        "node": place.node,
        "local_rank": place.local_rank,
        "gpu": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "slurm_node": os.environ.get("SLURMD_NODENAME"),
        "python": sys.executable,
        "peers": len(set(place.addresses)),
        "secret_in": arguments_with(os.environ[TOKEN]),
    }
    note = folder / f"found-{place.rank}.json"
    new = note.with_suffix(".new")  # or the test might read half of it
    new.write_text(json.dumps(found))
    new.replace(note)
    if act == "die":
        print(LAST_WORDS)
        return 3
    if act == "stay":
        time.sleep(LONG_S)
    link.close()
    return 0


def arguments_with(secret: str) -> list[str]:
    """The programs of this host with the secret in their arguments, which every user can read."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            words = (process / "cmdline").read_text(errors="replace").split("\0")
            found += [words[0] for word in words if secret in word]
    return found


if __name__ == "__main__":
    sys.exit(main())

"""The process that writes files in the background: `python -m ckptbench.strategies.writer MEMORY BYTES PARENT`.

MEMORY is the number of an open file descriptor, the shared memory of BYTES in which the rank, process PARENT, has put
what is to be written. Each line of standard input is a request, `{"path": ..., "bytes": ...}`: write a new file with the
first so many bytes of the memory. Each line of standard output is the answer, `{}` or `{"error": ...}`. The process ends
when its input ends, or its parent does.

It imports the standard library alone, because every rank starts one.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
from typing import Any

from ckptbench.world.processes import die_with_parent, ignore_stop_signals


def main(memory: int, nbytes: int, parent: int) -> None:
    die_with_parent(parent)
    ignore_stop_signals()
    with mmap.mmap(memory, nbytes, prot=mmap.PROT_READ) as source:
        for line in sys.stdin:
            print(json.dumps(_answer(source, json.loads(line))), flush=True)


def _answer(source: mmap.mmap, request: dict[str, Any]) -> dict[str, str]:
    try:
        write_new(request["path"], memoryview(source)[: request["bytes"]])
    except OSError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {}


def write_new(path: str, content: memoryview) -> None:
    """Write a new file. It is not synced."""
    with open(path, "xb", buffering=0) as file, content:
        written = 0
        while written < len(content):
            written += os.write(file.fileno(), content[written:])


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

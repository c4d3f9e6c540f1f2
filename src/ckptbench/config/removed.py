"""What the last version had and this one has not, for one version: each with the words that say what to use instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

LAST_WITH = "0.1"
"""The last version that had all of these."""
_KINDS = dict.fromkeys(("slow", "full_disk", "io_error"), "use kill, hang or damage")
_DIRECT = "use --state, --bandwidth, --rank-bandwidth, --shared-by and --write-fixed of ckptbench decide in place of the file, or give the times"
REMOVED: Mapping[str, Mapping[str, str]] = {
    "": {
        "own": "use `ckptbench-probe compare`, which needs no config (docs/own-training.md)",
        "storage": _DIRECT,
    },
    "decision": dict.fromkeys(
        ("survivable", "replacement_minutes"), "leave it out; docs/decision.md says what is assumed"
    ),
    "strategies": {"asynchronous": "leave it out; a save with durable_s goes on in the background"},
    "dataset": {
        "nt3": "use synthetic with the shape of its data, as config/studies/deepfreeze.yaml does"
    },
    "datasets": {"nt3": "leave it out"},
    "model": {
        "googlenet_aux": "use googlenet",
        "llama_debug": "use gpt_baby, or gpt2 for a large state",
    },
    "history": {"again": "use rerun, its new name"},
    "kind": _KINDS,
    "faults": _KINDS,
    "strategy": {
        "partner": "leave it out; a restart on other nodes takes the newest version at shared",
        "stager": "leave it out; all saves reuse the memory of the copies",
        "compression": "leave it out; Orbax writes without",
    },
    "recovery": {
        "horovod_elastic": "use restart with Horovod, or torchrun, torchft, ulfm or reinit with another framework",
    },
}
"""By the field that took them as a value, or the section in which they were fields; "" is the whole file. Each is the end of
the line "... was removed after version 0.1: ...", so it says what to do and has no colon."""


def words_of(value: object) -> Iterator[str]:
    """The names in a value: itself, or the keys and texts of a mapping or list."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from words_of(name)
            yield from words_of(each)
    elif isinstance(value, list):
        for each in value:
            yield from words_of(each)

"""Counters of a launcher's machine around an attempt, for tests of the table `machine`."""

from __future__ import annotations

import dataclasses

from ckptbench.run.events import Counted

BEGIN = Counted(
    attempt=1,
    when="begin",
    at_ns=5 * 10**9,
    cores=2,
    busy_s=1000.0,
    own_s=3.0,
    kernel_s=10.0,
    stolen_s=7.0,
)


def during(seconds: float = 100.0, begin: Counted = BEGIN, **used_s: float) -> tuple[Counted, ...]:
    """The counters around an attempt, in which each of these has grown by so much."""
    grown = {f"{name}_s": getattr(begin, f"{name}_s") + each for name, each in used_s.items()}
    at_ns = begin.at_ns + round(seconds * 1e9)
    return begin, dataclasses.replace(begin, when="end", at_ns=at_ns, **grown)  # type: ignore[arg-type]

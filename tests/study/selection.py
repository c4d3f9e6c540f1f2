"""How wide the study's tests are: one switch, read here alone."""

from __future__ import annotations

import os

from ckptbench.matrix.registry import FRAMEWORKS, on_any_ranks

FULL = bool(os.environ.get("CKPTBENCH_FULL_TESTS"))
"""Whether to try every combination (`make test-full`), rather than each value of each at least once (`make test`)."""
DRAWN = ("overhead", "sizes", "stall", "timeline", "advice")
"""Figures of the tiny study: two points, two epochs and one strategy make no curve, and no projection is asked for."""
RANKS = (1, 2, 3) if FULL else (1, 2)
TRIED = {name: FRAMEWORKS[name] for name in (FRAMEWORKS if FULL else on_any_ranks())}
"""Frameworks. Those whose shards are on several ranks train by the code of another one; `test_shards.py` tries what is their own."""
CONSISTENT = {name: entry for name, entry in TRIED.items() if FULL or name != "horovod_tensorflow"}
"""Those whose versions are compared with the states of their steps. Of TensorFlow's step Horovod changes only the gradients, before any
variable is written. `test_frameworks.py` tests when the step calls its hook."""
OWN = {name: entry for name, entry in TRIED.items() if FULL or not entry.extends_another}
"""Those of them that train by code of their own. On one rank the others do nothing else, so they are tried where ranks meet."""

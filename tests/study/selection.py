"""How wide the study's tests are: one switch, read here alone."""

from __future__ import annotations

import os

FULL = bool(os.environ.get("CKPTBENCH_FULL_TESTS"))
"""Whether to try every combination (`make test-full`), rather than each value of each at least once (`make test`)."""
RANKS = (1, 2, 3) if FULL else (1, 2)

"""Invented rows of the tables on failures and recoveries, for `figure_tables`."""

from __future__ import annotations

import re

import numpy as np
from training_tables import Setup

from ckptbench.analysis.tables.columns import LOST_PARTS


def goodput(setup: Setup, repeats: int, place: int) -> Setup:
    """Failures as often as the mean of their trace says, else two a run, each with every part.

    The first part takes 0.1 s, each other one as much longer as it comes later; of each later recovery half as much.
    """
    failures = (
        120 / float(mean[1]) if (mean := re.search(r"mean_s_(\d+)$", setup["history"])) else 2.0
    )
    parts = {
        name: failures * 0.1 * number / 2**place for number, name in enumerate(LOST_PARTS, start=1)
    }
    lost_s = sum(parts.values())
    used = 1 - 0.1 * place
    useful = {"": 100.0, "_lo": 90.0, "_hi": 110.0 if repeats > 1 else np.nan}
    if repeats == 1:
        useful["_lo"] = np.nan
    return {
        **setup,
        "repeats": repeats,
        "paired_repeats": repeats,
        "failures": failures,
        "failures_per_hour": failures * 3600 / (100 + lost_s),
        "wall_s": 100 + lost_s,
        "useful_s": 100.0,
        "ranks_used": used * setup["ranks"],
        **{f"goodput{end}": value / (100 + lost_s) for end, value in useful.items()},
        **{
            f"goodput_of_ranks{end}": used * value / (100 + lost_s) for end, value in useful.items()
        },
        "loss_s": lost_s / 0.98,
        "parts_s": lost_s,
        "explained": 0.98,
        **parts,
        "kept": True,
    }

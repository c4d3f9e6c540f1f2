"""What a restart leaves out of the state on purpose: the negative controls of the resume proof."""

from __future__ import annotations

from ckptbench.errors import CheckpointError
from ckptbench.frameworks.base import Arrays

REPLACED = {"random": "random/", "dropout": "seed/", "statistics": "buffer/"}
"""Omissions of a part of `Framework.rank_state`: what the names of that part begin with."""
FORGOTTEN = ("momentum", "first_update")
"""Omissions that are the framework's to make, after it has loaded everything: see `Framework.forget`."""


def replaced(omit: str, state: Arrays, other: Arrays) -> Arrays:
    """`state` with the part `omit` as it is in `other`.

    Raises CheckpointError where `state` has no such part: a control that changes nothing is no control.
    """
    names = [name for name in state if name.startswith(REPLACED[omit])]
    if not names:
        raise CheckpointError(
            f"omit is {omit}, and this rank's state has nothing under {REPLACED[omit]}: leaving it out "
            "would show nothing; take a model that has it, or another omission"
        )
    return {**state, **{name: other[name] for name in names}}

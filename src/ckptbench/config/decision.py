"""What the user decides for: how many GPUs, which failure rate, and what no study on one machine can measure."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ckptbench.config.section import Section
from ckptbench.config.values import (
    LARGEST_NUMBER,
    Count,
    FilePath,
    OneOrMore,
    PathOrNull,
    whole,
)


class DecisionSection(Section):
    """What the decision is for: how often to checkpoint, with what, and how to recover."""

    rate: Annotated[str, Field(min_length=1)] = "llama3"
    """The [failure rate](#failure-rates) of answer and figures: a file in `rates`, without `.yaml`."""
    rates: FilePath = "config/failures"
    """The folder of the failure rates."""
    gpus: Annotated[list[Annotated[int, whole(2, LARGEST_NUMBER)]], OneOrMore()] = Field(default=[])
    """Numbers of GPUs to project to. Empty: nothing is projected."""
    gpus_per_node: Count = 8
    """GPUs of one node."""
    numbers: PathOrNull = None
    """A file with [your own costs](#costs-of-your-own) instead of those of the study."""

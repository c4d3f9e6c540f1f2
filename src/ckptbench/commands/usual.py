"""What the decision takes where nobody says otherwise: the defaults of the config."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ckptbench.decide.choices import Choices
from ckptbench.study.config import DecisionSection


def usual(**own: Any) -> Choices:
    """The defaults of the section `decision`, with one's own choices in their place."""
    section = DecisionSection()
    known = {field.name: getattr(section, field.name) for field in fields(Choices)}
    return Choices(**{**known, "gpus": tuple(section.gpus), **own})

"""What the user decides for: how many GPUs, which failure rate, and what no study on one machine can measure."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Self

from ckptbench.common.errors import ConfigError
from ckptbench.decide.units import SECONDS_PER_MINUTE


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The section `decision` of the config. config/README.md says where the defaults come from."""

    rate: str
    """Name of the failure rate that sentences and figures are about."""
    gpus: tuple[int, ...]
    """Numbers of GPUs to project to."""
    survivable: float
    """The part of all failures that hit one node alone, so that survivors can go on."""
    replacement_minutes: float
    """Until a replacement comes for what is lost, where the recovery does not replace it by itself."""
    gpus_per_node: int
    """A failure takes one node, if there are several."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """From a JSON object with all fields, as the workflow hands it to scripts. Raises ConfigError where it is none."""
        names = [field.name for field in fields(cls)]
        try:
            content = json.loads(text)
            return cls(**{**content, "gpus": tuple(content["gpus"])})
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ConfigError(
                f"choices {text}: use a JSON object with {', '.join(names)}"
            ) from error

    @property
    def replacement_s(self) -> float:
        return self.replacement_minutes * SECONDS_PER_MINUTE

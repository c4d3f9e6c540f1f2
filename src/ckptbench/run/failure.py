"""A failure as data: when it strikes, whom, and how."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from ckptbench.common.errors import ConfigError

Moment = Literal["step", "save", "recovery"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One failure. It strikes at `second`, or where that is None at a moment of its victim's work.

    Raises ConfigError where it has no victim or no time, or two.
    """

    second: float | None = None
    """Seconds after the first step of the run has begun."""
    step: int | None = None
    """Completed steps of the run: it strikes at the moment when the next step begins, or the checkpoint of this one."""
    moment: Moment = "step"
    """`recovery` goes without a step: when the victim begins to recover from a failure before this one."""
    stage: str | None = None
    """With the moment `save`: the stage of this checkpoint at which it strikes. None: when the checkpoint begins."""
    delay_s: float = 0.0
    """It strikes this much later."""
    rank: int | None = None
    """The victim: one rank."""
    node: int | None = None
    """The victims: all ranks of a node. Nodes are counted in the order of their ranks."""
    kind: str = "kill"
    lasts_s: float = 5.0
    """For how long the victim hangs."""

    def __post_init__(self) -> None:
        if (self.rank is None) == (self.node is None):
            raise ConfigError("a failure hits a rank or a node: name one of them")
        if self.moment == "recovery":
            if (self.second, self.step) != (None, None):
                raise ConfigError(
                    "a failure at the moment recovery has neither second nor step: remove them"
                )
        elif (self.second is None) == (self.step is None):
            raise ConfigError("a failure occurs at a second or at a step: name one of them")
        elif self.second is not None and self.moment != "step":
            raise ConfigError(f"a failure at a second has no moment {self.moment}: name a step")
        assert self.stage is None or self.moment == "save"

    def waits_for(self, moment: Moment, step: int | None, stage: str | None) -> bool:
        """Whether it strikes at this moment of its victim's work."""
        return self.second is None and (self.moment, self.step, self.stage) == (moment, step, stage)

    @property
    def kills(self) -> bool:
        return self.kind in ("kill", "damage")

    def victims(self, nodes: Sequence[str]) -> tuple[int, ...]:
        """The ranks that it strikes. `nodes` has the node of every rank, by rank. Empty if there is no such rank or node."""
        if self.rank is not None:
            return (self.rank,) if self.rank < len(nodes) else ()
        assert self.node is not None
        names = list(dict.fromkeys(nodes))[self.node : self.node + 1]
        return tuple(rank for rank, node in enumerate(nodes) if node in names)

    def __str__(self) -> str:
        """As a config writes it: `{step: 500, rank: 0}`."""
        given = (
            f"{field.name}: {value}"
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) != field.default
        )
        return f"{{{', '.join(given)}}}"

    def to_json(self) -> dict[str, Any]:
        """All fields that are not None."""
        fields = dataclasses.asdict(self)
        return {name: value for name, value in fields.items() if value is not None}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        return cls(**content)

"""The cell, one point of the matrix: its fields, the checks of impossible combinations, and its id."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from ckptbench.common.errors import ConfigError
from ckptbench.matrix.interval import NEVER, Interval
from ckptbench.matrix.levels import levels_of
from ckptbench.matrix.networks.models import READ_TOKENS
from ckptbench.matrix.plugin_spec import Entry, PluginSpec
from ckptbench.matrix.registry import (
    BEYOND,
    FAULTS,
    FRAMEWORKS,
    HISTORIES,
    IMPORTED_ALWAYS,
    IMPORTS,
    KILLED,
    NATIVE,
    NO_FORMAT,
    NOTHING,
    OF_SEVERAL_RANKS,
    RECOVERIES,
    RESTART,
    STRATEGIES,
    UNDISTURBED,
    WHOLE,
    Optimizer,
    Precision,
    environment_of,
    formats_of,
    undisturbed_recovery,
)

Accelerator = Literal["cpu", "cuda"]
Cache = Literal["warm", "cold"]
SPECS: Mapping[str, Mapping[str, Entry]] = {
    "strategy": STRATEGIES,
    "faults": FAULTS,
    "recovery": RECOVERIES,
}
"""The fields that are specs, with their registries."""
CHOSEN_LATER = {"optimizer": "sgd", "precision": "fp32"}
"""Fields that cells once did not have, with the value that all of them had."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Cell:
    """One point of the matrix. Raises ConfigError if its combination of values is impossible."""

    framework: str
    model: str
    dataset: str
    ranks: int
    batch_size: int
    """Samples per rank and step."""
    epochs: int
    format: str
    interval: Interval
    optimizer: Optimizer = "sgd"
    precision: Precision = "fp32"
    """`bf16`: products are computed in bfloat16, and parameters stay in float32."""
    strategy: PluginSpec = NATIVE
    deterministic: bool = False
    accelerator: Accelerator = "cpu"
    history: str = WHOLE
    faults: PluginSpec = UNDISTURBED
    """The failures that strike the run."""
    recovery: PluginSpec = RESTART
    """How training goes on after a failure."""
    omit: str = NOTHING
    """Part of the state that the restarts of a killed run leave out."""
    cache: Cache = "warm"
    """Whether the page cache holds (`warm`) or not (`cold`) the checkpoint from which a killed run restarts."""
    repeat: int = 0

    def __post_init__(self) -> None:
        for kind, registry in SPECS.items():
            spec = getattr(self, kind)
            _check_name(kind, spec.name, registry)
            PluginSpec.of(kind, spec.name, dict(spec.options), registry[spec.name])
        _check_name("history", self.history, HISTORIES)
        _check_name("framework", self.framework, FRAMEWORKS)
        levels_of(self.strategy)
        for is_wrong, words in self._checks():
            if is_wrong:
                raise ConfigError(words)

    def _checks(self) -> Iterator[tuple[bool, str]]:
        """What makes a combination of values impossible, with the words of the error."""
        strategy, recovery = STRATEGIES[self.strategy.name], RECOVERIES[self.recovery.name]
        formats = formats_of(self.framework, self.strategy.name)
        learns_from = "tokens" if self.model in READ_TOKENS else "images"
        for wanted in (self.optimizer, self.precision, learns_from):
            yield (
                wanted in BEYOND and wanted not in FRAMEWORKS[self.framework].offers,
                f"{self.framework} does not have {BEYOND.get(wanted)}: use it with {offering(wanted)}",
            )
        yield (
            FRAMEWORKS[self.framework].cpu_only and self.accelerator != "cpu",
            f"{self.framework} has no environment for accelerator {self.accelerator}: use accelerator cpu, or another framework",
        )
        replicas = FRAMEWORKS[self.framework].replicas
        yield (
            self.ranks % replicas != 0,
            f"{self.framework} with {self.ranks} ranks: each shard is on {replicas} of them; use ranks that {replicas} divides",
        )
        yield (
            recovery.own_environment and self.accelerator != "cpu",
            f"recovery {self.recovery.name} has no environment for accelerator {self.accelerator}: use accelerator cpu, or "
            f"recovery {RESTART.name}",
        )
        yield (
            recovery.reinitializes and self.accelerator != "cpu",
            f"recovery {self.recovery.name} is for accelerator cpu: on a GPU survivors would wait for a lost rank for ever; use "
            f"recovery {RESTART.name}",
        )
        for kind, entry in (("strategy", strategy), ("recovery", recovery)):
            yield (
                not entry.serves(self.framework),
                f"{kind} {getattr(self, kind).name} does not serve {self.framework}: use it with {', '.join(entry.frameworks or ())}",
            )
        yield (
            (self.interval == NEVER) != (self.format == NO_FORMAT),
            f"interval {self.interval} with format {self.format}: only a baseline has no format",
        )
        writer = self.framework if strategy.formats is None else f"strategy {self.strategy.name}"
        yield (
            self.format not in (NO_FORMAT, *formats),
            f"{writer} does not write {self.format}: use {', '.join(formats)}",
        )
        yield (
            not recovery.goes_with(self.strategy.name),
            f"recovery {self.recovery.name} does not go with strategy {self.strategy.name}: use it with "
            f"{', '.join(recovery.strategies or ())}",
        )
        yield (
            self.optimizer == "adamw"
            and dict(self.recovery.options).get("learning_rate") == "scaled",
            f"recovery {self.recovery}: learning_rate scaled does nothing with optimizer adamw, as it weighs gradients, and AdamW "
            "divides them by their size; use kept",
        )
        yield (
            self.is_killed and self.recovery != RESTART,
            f"recovery {self.recovery} with faults {self.faults}: they are there to compare restarts; use recovery "
            f"{RESTART.name}, or other faults",
        )
        yield (
            not self.is_struck and self.recovery != self._undisturbed_recovery,
            f"recovery {self.recovery} with faults {self.faults}: there is nothing to recover from; use recovery "
            f"{self._undisturbed_recovery}, or other faults",
        )
        yield (
            self.is_compared and self.is_baseline,
            f"{self.disturbance} needs an interval other than never: a baseline is not compared with itself",
        )
        yield (
            self.history != WHOLE and self.is_struck,
            f"faults {self.faults} with history {self.history}: a run is disturbed in one way; leave one of them out",
        )
        yield (
            not self.is_killed and (self.omit, self.cache) != (NOTHING, "warm"),
            f"omit and cache need a run that is killed for its resume proof: use faults {', '.join(KILLED)}",
        )
        needed = FRAMEWORKS[self.framework].omissions
        yield (
            self.omit not in (NOTHING, *needed),
            f"omit {self.omit} changes no restart of {self.framework}: use {', '.join(needed)}",
        )
        yield (
            self.omit in OF_SEVERAL_RANKS and self.ranks == 1,
            f"omit {self.omit} changes nothing with one rank: use ranks from 2",
        )

    @property
    def is_struck(self) -> bool:
        """Whether failures strike the run."""
        return self.faults != UNDISTURBED

    @property
    def is_killed(self) -> bool:
        """Whether they are drawn kills, for the resume proof."""
        return self.faults.name in KILLED

    @property
    def failure_list(self) -> str | None:
        """The name of the list in the config that has the failures, if they are listed."""
        return (
            str(dict(self.faults.options).get("name", "")) if self.faults.name == "listed" else None
        )

    @property
    def is_compared(self) -> bool:
        """Whether the run is there to be compared with its reference, bit by bit."""
        return self.history != WHOLE or self.is_killed

    @property
    def is_undisturbed(self) -> bool:
        return self.history == WHOLE and not self.is_struck

    @property
    def disturbance(self) -> str:
        """The history, or the faults, in one text: `whole`, `killed_thrice`, `exponential_mean_s_30`."""
        return str(self.faults) if self.is_struck else self.history

    @property
    def id(self) -> str:
        """Readable and stable name: it depends only on this cell, not on the rest of the matrix."""
        parts = [
            self.framework,
            self.model,
            self.dataset,
            f"r{self.ranks}",
            f"b{self.batch_size}",
            f"n{self.epochs}",
            *([self.optimizer] if self.optimizer != "sgd" else []),
            *([self.precision] if self.precision != "fp32" else []),
            *([str(self.strategy)] if self.strategy != NATIVE else []),
            *([self.format] if self.format != NO_FORMAT else []),
            str(self.interval),
            *(["deterministic"] if self.deterministic else []),
            *([self.accelerator] if self.accelerator != "cpu" else []),
            *([self.disturbance] if self.disturbance != WHOLE else []),
            *([str(self.recovery)] if self.recovery != RESTART else []),
            *([f"without_{self.omit}"] if self.omit != NOTHING else []),
            *([self.cache] if self.cache != "warm" else []),
            f"rep{self.repeat}",
        ]
        return "-".join(parts)

    @property
    def is_baseline(self) -> bool:
        return self.interval == NEVER

    @property
    def baseline(self) -> Self:
        """The cell with interval `never`, otherwise equal."""
        return dataclasses.replace(
            self.reference, interval=NEVER, format=NO_FORMAT, strategy=NATIVE
        )

    @property
    def reference(self) -> Self:
        """Cell of the undisturbed run with which a disturbed run or a second run with the same seed is compared.

        It has the same recovery where that is elastic: such a recovery costs something where nothing fails too.
        """
        if self.is_undisturbed:  # then it has no other field below
            return self
        return dataclasses.replace(
            self,
            history=WHOLE,
            faults=UNDISTURBED,
            recovery=self._undisturbed_recovery,
            omit=NOTHING,
            cache="warm",
        )

    @property
    def _undisturbed_recovery(self) -> PluginSpec:
        return PluginSpec(undisturbed_recovery(self.recovery.name))

    @property
    def environment(self) -> str:
        """Name of the environment in which the cell runs; its lock is `envs/<name>.txt`."""
        own = RECOVERIES[self.recovery.name].own_environment
        framework = environment_of(self.framework)
        packages = f"{framework}_{self.recovery.name}" if own else framework
        return packages if self.accelerator == "cpu" else f"{packages}-{self.accelerator}"

    @property
    def imports(self) -> tuple[str, ...]:
        """The modules that its ranks import, of those that an environment may lack."""
        format = self.format if self.strategy == NATIVE else NOTHING
        named = (environment_of(self.framework), format, self.strategy.name, self.recovery.name)
        found = (module for name in named for module in IMPORTS.get(name, ()))
        return (*IMPORTED_ALWAYS, *dict.fromkeys(found))

    def to_json(self) -> dict[str, Any]:
        """Without `optimizer` and `precision` where they are the default: results of before there was a choice stay valid."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name, default in CHOSEN_LATER.items():
            if fields[name] == default:
                del fields[name]
        specs = {kind: fields[kind].to_json() for kind in SPECS}
        return {**fields, **specs, "interval": str(self.interval)}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        specs = {kind: PluginSpec.from_json(fields[kind]) for kind in SPECS}
        return cls(**{**fields, **specs, "interval": Interval.parse(fields["interval"])})


def offering(what: str) -> str:
    """The frameworks that offer it, in words."""
    return ", ".join(name for name, entry in FRAMEWORKS.items() if what in entry.offers)


def _check_name(kind: str, name: str, registry: Collection[str]) -> None:
    if name not in registry:
        raise ConfigError(f'unknown {kind} "{name}": use {", ".join(registry)}')

"""One run of an own training: which values it has, and the command that comes of them."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from ckptbench.common.errors import ConfigError
from ckptbench.config.reading import FieldError
from ckptbench.config.values import NAME_BYTES
from ckptbench.own.config import FOLDER, OwnConfig, OwnSection, filled, placeholders

BASELINE = "baseline"
MOST_CELLS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCell:
    """All that makes a run. One that was made from the same is the same run."""

    id: str
    values: dict[str, str]
    """The label of each placeholder's value. A baseline has those alone that it does not replace."""
    repeat: int
    is_baseline: bool
    baseline: str
    """Id of the baseline with the same repeat; of a baseline its own."""
    command: str
    """With all values; {folder} is left."""
    environment: dict[str, str] = field(default_factory=dict)
    directory: str = "."
    """In which the command runs; from the workflow's folder."""
    checkpoints: str | None = None
    """Below which its {folder} is made. None: the run folder."""
    ranks: int = 1
    gpus: int = 0

    @property
    def setup(self) -> str:
        """The id without the repeat."""
        return self.id.removesuffix(f"-rep{self.repeat}")

    def words(self, folder: str) -> list[str]:
        """Of the command, with this folder for checkpoints. Raises ValueError where a quote is open."""
        return [filled(word, {FOLDER: folder}) for word in shlex.split(self.command)]

    def variables(self, folder: str) -> dict[str, str]:
        return {name: filled(text, {FOLDER: folder}) for name, text in self.environment.items()}

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Raises ConfigError where the fields are not those of a cell."""
        try:
            return cls(**content)
        except TypeError as error:
            raise ConfigError(f"no cell of an own training of this version: {error}") from error


def expand_own(config: OwnConfig) -> list[OwnCell]:
    """Every cell in the order to run them: each repeat is a block, in which each baseline is beside the cells that are compared with
    it. Every second block runs backwards, so that a machine that grows slower does so for all alike.

    Raises FieldError where two cells have one name or one command, or there are more than MOST_CELLS.
    """
    blocks = [list(_block(config.own, repeat)) for repeat in range(config.repeats)]
    cells = [
        cell for number, block in enumerate(blocks) for cell in block[:: -1 if number % 2 else 1]
    ]
    if len(cells) > MOST_CELLS:
        raise FieldError(
            ("own", "values"),
            f"they and repeats give {len(cells):,} runs: at most {MOST_CELLS:,} are allowed",
        )
    _check(blocks[0])
    return cells


def _block(own: OwnSection, repeat: int) -> Iterator[OwnCell]:
    names = list(own.values)
    products = itertools.product(*own.values.values())
    combinations = [dict(zip(names, labels, strict=True)) for labels in products]
    kept = _kept(own)
    groups: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for each in combinations:
        groups.setdefault(tuple(each[name] for name in kept), []).append(each)
    for labels, group in groups.items():
        baseline = _cell(own, dict(zip(kept, labels, strict=True)), repeat)
        yield baseline
        for values in group:
            yield _cell(own, values, repeat, baseline=baseline.id)


def _kept(own: OwnSection) -> list[str]:
    """The placeholders whose values a baseline does not replace."""
    if isinstance(own.baseline, str):
        texts = [own.baseline, *own.environment.values()]
        used = {name for text in texts for name in placeholders(text)}
        return [name for name in own.values if name in used]
    return [name for name in own.values if name not in own.baseline]


def _cell(
    own: OwnSection, values: Mapping[str, str], repeat: int, *, baseline: str | None = None
) -> OwnCell:
    """With these labels of values. `baseline` is the id of the one that it is compared with; None: it is a baseline itself."""
    command = own.command
    texts = {name: own.values[name][label] for name, label in values.items()}
    if baseline is None:
        if isinstance(own.baseline, str):
            command = own.baseline
        else:
            texts |= own.baseline
    parts = [f"{name}_{label}" for name, label in values.items()]
    cell_id = "-".join([*([BASELINE] if baseline is None else []), *parts, f"rep{repeat}"])
    return OwnCell(
        id=cell_id,
        values=dict(values),
        repeat=repeat,
        is_baseline=baseline is None,
        baseline=baseline or cell_id,
        command=filled(command, texts),
        environment={name: filled(text, texts) for name, text in own.environment.items()},
        directory=own.directory or ".",
        checkpoints=own.folder,
        ranks=own.ranks,
        gpus=own.gpus,
    )


def _check(block: list[OwnCell]) -> None:
    known: dict[str, OwnCell] = {}
    made: dict[tuple[str, tuple[tuple[str, str], ...]], OwnCell] = {}
    for cell in block:
        if len(cell.id) > NAME_BYTES - len("0000.log"):
            raise FieldError(
                ("own", "values"),
                f"the name of a run, {cell.id}, is too long for a file: use shorter labels",
            )
        if cell.id in known:
            raise FieldError(
                ("own", "values"), f"two different runs have the name {cell.id}: rename a label"
            )
        known[cell.id] = cell
        try:
            cell.words("")
        except ValueError as error:
            raise FieldError(
                ("own", "values"),
                f"the command of {cell.setup} cannot be read ({str(error).lower()}): quotes in a value must come in pairs",
            ) from None
        key = cell.command, tuple(cell.environment.items())
        if (other := made.setdefault(key, cell)) != cell:
            raise FieldError(
                ("own", "values"),
                f"{cell.setup} and {other.setup} would be the same command: leave one of the two out",
            )

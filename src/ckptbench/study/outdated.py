"""Which tables, figures and pages are outdated: made from other content than there is now.

File times say nothing here, so results that were copied, restored or checked out stay as they are. `made_from.json` lies
beside the outputs, and holds for each rule the SHA-256 of every input and output, and the settings. Runs, datasets and
environments have such a record in their own folders.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ckptbench.errors import RunFolderError
from ckptbench.machine.files import file_sha256, read_json, write_json

log = logging.getLogger(__name__)

SHOWN = 3
"""Reasons that a message names."""
CODE = ("src/", "scripts/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """What one rule makes, and from what."""

    name: str
    """Of the rule."""
    inputs: tuple[str, ...]
    """Paths of files."""
    settings: str
    """All else that the outputs depend on."""
    outputs: tuple[str, ...]


@dataclass(slots=True)
class Digests:
    """SHA-256 of files, each read once."""

    known: dict[str, str | None] = field(default_factory=dict)

    def of(self, path: str) -> str | None:
        """None where there is no such file that can be read."""
        if path not in self.known:
            self.known[path] = _sha256(path)
        return self.known[path]

    def of_all(self, paths: Iterable[str]) -> dict[str, str | None]:
        return {path: self.of(path) for path in paths}


def _sha256(path: str) -> str | None:
    file = Path(path)
    try:
        return file_sha256(file) if file.is_file() else None
    except OSError:
        return None


class MadeFrom:
    """The record of what outputs were made from, by the name of their rule."""

    def __init__(self, path: Path) -> None:
        """Read the record. One that is missing or damaged is empty: then all that it should tell of is made again."""
        self._path = path
        self._entries: dict[str, Any] = {}
        if path.exists():
            try:
                self._entries = read_json(path)
            except RunFolderError as error:
                log.warning("%s; tables and figures are made again", error)

    def reasons(self, product: Product, digests: Digests) -> list[str]:
        """Why the outputs are outdated: the names of what has changed. Empty: they are up to date."""
        entry = self._entries.get(product.name)
        match entry:
            case {"inputs": dict(inputs), "settings": settings, "outputs": dict(outputs)}:
                changed = [] if settings == product.settings else ["settings"]
                changed += _differences(inputs, digests.of_all(product.inputs))
                return changed + _differences(outputs, digests.of_all(product.outputs))
        return [f"{self._path} does not say what they were made from"]

    def note(self, products: Iterable[Product], planned: Digests, made: Collection[str]) -> None:
        """Record these products, which have just been made, and write the record.

        `planned` are the digests of when the workflow began, and `made` the paths that it has made since. A product is left out, and
        so made again at the next start, if another of its inputs was changed since then: nobody knows whether it was made from the
        old or the new content.
        """
        now = Digests()
        for product in products:
            self._entries.pop(product.name, None)
            given = [path for path in product.inputs if path not in made]
            if any(planned.of(path) != now.of(path) for path in given):
                continue
            self._entries[product.name] = {
                "settings": product.settings,
                "inputs": now.of_all(product.inputs),
                "outputs": now.of_all(product.outputs),
            }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._path, self._entries)


def _differences(noted: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The paths with another digest, and those that only one of the two has, in words."""
    marks = {path: "" for path in noted if path in now and noted[path] != now[path]}
    marks |= {path: " (new)" for path in now if path not in noted}
    marks |= {path: " (no longer used)" for path in noted if path not in now}
    return [f"{path}{mark}" for path, mark in marks.items()]


def outdated(
    products: Collection[Product],
    record: MadeFrom,
    digests: Digests,
    made_again: Collection[str],
) -> dict[str, str | None]:
    """The names of the outdated products, each with the reason.

    A product is outdated too, with None as its reason, if one of its inputs is made again: by a product that is outdated or missing,
    or by a rule that the caller knows of, whose outputs are `made_again`. A product of which nothing is there is missing, and not
    outdated.
    """
    found: dict[str, str | None] = {}
    for product in products:
        missing = [path for path in product.outputs if digests.of(path) is None]
        if missing:
            found[product.name] = f"{missing[0]} is missing"
        elif reasons := record.reasons(product, digests):
            found[product.name] = shown(reasons)
    again = {*made_again, *_outputs(products, found)}
    while new := {
        product.name: None
        for product in products
        if product.name not in found and not again.isdisjoint(product.inputs)
    }:
        found |= new
        again |= _outputs(products, new)
    there = {product.name for product in products if any(map(digests.of, product.outputs))}
    return {name: reason for name, reason in found.items() if name in there}


def _outputs(products: Iterable[Product], names: Collection[str]) -> set[str]:
    return {path for product in products if product.name in names for path in product.outputs}


def shown(reasons: list[str]) -> str:
    """The first of the reasons, and how many more there are. Files of the source are one reason."""
    named = dict.fromkeys(
        "the code of ckptbench" if each.startswith(CODE) else each for each in reasons
    )
    more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
    return f"changed: {', '.join([*named][:SHOWN])}{more}"


def lines(outdated: Mapping[str, str | None]) -> Iterator[str]:
    """What a user reads about outdated products and runs: one line for each reason."""
    alike: dict[str, list[str]] = {}
    for name, reason in outdated.items():
        if reason is not None:
            alike.setdefault(reason, []).append(name)
    for reason, names in alike.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield f"outdated: {names[0]}{more}: {reason}"

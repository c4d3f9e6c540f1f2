"""The settings that are compared: each combination of values, and the runs without checkpoints that they are compared with."""

from __future__ import annotations

import itertools
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = "folder"
"""Placeholder of the fresh folder for the checkpoints of a run."""
PLACEHOLDER = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""`${NAME}` is a shell's, and other braces are the command's own."""
BASELINE = "baseline"
MOST_SETTINGS = 1000
Values = tuple[tuple[str, str], ...]


class SettingsError(Exception):
    """The message is one line for the user."""


@dataclass(frozen=True)
class Setting:
    values: Values
    """A baseline has only those that it does not replace."""
    words: tuple[str, ...]
    """The command; {folder} is left."""
    baseline: str
    """Label of the setting that it is compared with; empty: it is a baseline itself."""

    @property
    def label(self) -> str:
        parts = [f"{name}={text}" for name, text in self.values]
        return ", ".join(parts if self.baseline else [BASELINE, *parts])

    def command(self, folder: Path) -> list[str]:
        return [_filled(word, {FOLDER: str(folder)}) for word in self.words]


def read_values(texts: Sequence[str]) -> dict[str, list[str]]:
    """Of `--value NAME=A,B`. The same name again adds to its values."""
    found: dict[str, list[str]] = {}
    for text in texts:
        name, listed = _pair("--value", text, "interval=10,20")
        own = found.setdefault(name, [])
        for value in listed.split(","):
            if value in own:
                raise SettingsError(f'--value {text}: "{value}" is there twice: remove one')
            own.append(value)
    return found


def read_baseline(texts: Sequence[str], values: Mapping[str, Sequence[str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, value = _pair("--baseline", text, "interval=1000000")
        if name not in values:
            raise SettingsError(
                f"--baseline {text}: no --value has the name {name}: use one of {', '.join(values)}"
            )
        if name in found:
            raise SettingsError(f"--baseline {text}: {name} is there twice: remove one")
        found[name] = value
    return found


def _pair(option: str, text: str, example: str) -> tuple[str, str]:
    name, equals, rest = text.partition("=")
    if not equals or not PLACEHOLDER.fullmatch(f"{{{name}}}"):
        raise SettingsError(
            f"{option} {text}: write a name of letters, digits and _, and what it stands for: {option} {example}"
        )
    if name == FOLDER:
        raise SettingsError(
            f"{option} {text}: {{folder}} is a fresh folder for each run: use another name"
        )
    return name, rest


def expand(
    command: Sequence[str], values: Mapping[str, Sequence[str]], baseline: Mapping[str, str]
) -> list[Setting]:
    """One block: each baseline, followed by the settings that are compared with it.

    Where `baseline` leaves values, each combination of these has a baseline of its own. Raises SettingsError.
    """
    _check_names(command, values)
    if not baseline:
        raise SettingsError(
            "no baseline: name values with which nothing is saved, as in --baseline interval=1000000"
        )
    kept = [name for name in values if name not in baseline]
    groups: dict[Values, list[Values]] = {}
    products = itertools.product(*values.values())
    for texts in itertools.islice(products, MOST_SETTINGS + 1):
        own = dict(zip(values, texts))
        groups.setdefault(tuple((name, own[name]) for name in kept), []).append(tuple(own.items()))
    block: list[Setting] = []
    for shared, members in groups.items():
        without = Setting(shared, _words(command, {**dict(shared), **baseline}), "")
        block.append(without)
        block += [Setting(own, _words(command, dict(own)), without.label) for own in members]
    _check_block(block)
    return block


def in_blocks(settings: Sequence[Setting], repeats: int) -> list[tuple[int, Setting]]:
    """In the order to run them, with the number of the block, from 1. Every second block runs backwards, so that a machine that slows down does so for all alike."""
    return [
        (number, one)
        for number in range(1, repeats + 1)
        for one in settings[:: 1 if number % 2 else -1]
    ]


def _check_names(command: Sequence[str], values: Mapping[str, Sequence[str]]) -> None:
    used = [name for word in command for name in PLACEHOLDER.findall(word)]
    if not values:
        raise SettingsError("nothing to compare: name values, as in --value interval=10,20")
    for name in used:
        if name not in values and name != FOLDER:
            raise SettingsError(
                f"{{{name}}} in the command has no values: add --value {name}=..., or correct the name"
            )
    for name in values:
        if name not in used:
            raise SettingsError(
                f"--value {name}: the command has no {{{name}}}: write it where the value goes, as in --save-every {{{name}}}"
            )
    if FOLDER not in used:
        raise SettingsError(
            "the command has no {folder}, so runs would find one another's checkpoints: write it where the command names the folder for them, as in --out {folder}"
        )


def _check_block(block: Sequence[Setting]) -> None:
    if len(block) > MOST_SETTINGS:
        raise SettingsError(f"these are more than {MOST_SETTINGS:,} settings: name fewer values")
    made: dict[tuple[str, ...], Setting] = {}
    for one in block:
        other = made.setdefault(one.words, one)
        if other is not one:
            raise SettingsError(
                f"{other.label} and {one.label} are the same command: leave one of the two out"
            )
        if not one.words or shutil.which(one.words[0]) is None:
            raise SettingsError(
                f"{one.words[0] if one.words else one.label}: no such program: correct the command after --"
            )
        if Path(one.words[0]).name == "ckptbench-probe":
            raise SettingsError(
                "compare itself measures the command: leave out ckptbench-probe after --"
            )


def _words(command: Sequence[str], values: Mapping[str, str]) -> tuple[str, ...]:
    """A word that is a placeholder and no more takes all words of its value: several, or none."""
    found: list[str] = []
    for word in command:
        alone = PLACEHOLDER.fullmatch(word)
        if alone is None or alone[1] not in values:
            found.append(_filled(word, values))
            continue
        try:
            found += shlex.split(values[alone[1]])
        except ValueError:
            raise SettingsError(
                f"{alone[1]}={values[alone[1]]}: quotes in a value must come in pairs"
            ) from None
    return tuple(found)


def _filled(text: str, values: Mapping[str, str]) -> str:
    return PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), text)

"""What was saved under one name after one update: the verdict on it, and in which words."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ckptbench_probe.reading import Event

WHOLE, MIXED, TORN, CANNOT_TELL = "whole", "mixed as given", "TORN", "cannot tell"
WORST_FIRST = (TORN, CANNOT_TELL, MIXED, WHOLE)
NOTHING = "it has no tensor that can be compared"


@dataclass
class Saved:
    """A file, or all files of a folder."""

    path: str
    update: int
    """After which the save was given its state."""
    kinds: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    ranks: set[int] = field(default_factory=set)
    compared: int = 0
    values: int = 0
    """Numbers, texts and lists of them that were compared."""
    not_compared: int = 0
    left: list[str] = field(default_factory=list)
    """Some that were not compared, and why."""
    torn: int = 0
    names: list[str] = field(default_factory=list)
    """Of some that are torn."""
    torn_of: Counter[str] = field(default_factory=Counter)
    several: Counter[str] = field(default_factory=Counter)
    as_given: bool = True
    """Whether the thread that steps had fixed all that was saved."""
    updates: set[int] | None = None
    """Those whose state all files are; None where no value tells."""
    troubles: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        if self.torn or (self.several and not self.as_given):
            return TORN
        if self.troubles or not self.compared:
            return CANNOT_TELL
        return MIXED if self.several else WHOLE

    @property
    def state_of(self) -> int | None:
        """The update whose state it is."""
        if not self.updates:
            return None
        return self.update if self.update in self.updates else max(self.updates)

    @property
    def text(self) -> str:
        if self.torn:
            return f"{self._torn()}: {self._instead()}"
        parts = " and ".join(
            f"{n} of update {of}" for of, n in sorted(self.several.items(), key=_by_update)
        )
        if self.verdict == TORN:
            return f"its tensors are of several updates: {parts}"
        if self.verdict == CANNOT_TELL:
            return "; ".join(dict.fromkeys(self.troubles)) or NOTHING
        if self.several:
            return f"the save received tensors of several updates: {parts}"
        if self.state_of is None:
            return f"the tensors passed to the save after update {self.update}"
        return f"the state of update {self.state_of}"

    def _torn(self) -> str:
        names = ", ".join(self.names[:3]) + (", ..." if self.torn > len(self.names[:3]) else "")
        number = f"{self.compared + self.values} tensors{' and values' if self.values else ''}"
        return f"{self.torn} of {number} are not those passed to the save ({names})"

    def _instead(self) -> str:
        mixed = self.torn_of["mixed"]
        updates = sorted((of for of in self.torn_of if of != "mixed"), key=int)
        if not updates:
            return "of no update (mixed)" if mixed else f"not of update {self.update}"
        text = f"of update {' and '.join(updates)} instead of {self.update}"
        return text + (f", {mixed} of no update (mixed)" if mixed else "")

    def as_dict(self) -> dict[str, Any]:
        return {
            "path": self.path, "update": self.update, "verdict": self.verdict, "text": self.text, "state_of": self.state_of,
            "kinds": sorted(self.kinds), "files": sorted(self.files), "ranks": sorted(self.ranks), "compared": self.compared, "values": self.values,
            "not_compared": self.not_compared, "left": self.left, "torn": self.torn, "names": self.names, "torn_of": dict(self.torn_of),
            "several": dict(self.several),
        }  # fmt: skip

    def add(self, found: Event) -> None:
        """The result of one rank for one file."""
        if "trouble" in found:
            self.troubles.append(found["trouble"])
            return
        self.compared += found["compared"]
        self.values += found["values"]
        self.not_compared += found["not_compared"]
        self.left += [one for one in found["left"] if one not in self.left]
        self.torn += found["torn_number"]
        self.names += [name for name in found["torn"] if name not in self.names]
        self.torn_of.update(found["torn_of"])
        self.several.update(found["several"])
        self.as_given = self.as_given and found["as_given"]
        if found["updates"] and not found["torn_number"]:
            self._of(set(found["updates"]))

    def _of(self, updates: set[int]) -> None:
        common = updates if self.updates is None else self.updates & updates
        if common or self.several:
            self.updates = common or self.updates
        else:  # files of different updates in one folder
            self.several.update({str(max(self.updates or updates)): 1, str(max(updates)): 1})


def _by_update(pair: tuple[str, int]) -> tuple[bool, int]:
    of = pair[0]
    return (False, int(of)) if of.isdigit() else (True, 0)

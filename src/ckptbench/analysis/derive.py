"""The collected tables to all tables that answer the study's questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from ckptbench.analysis.tables.registry import DERIVED


def derive(collected: Mapping[str, pd.DataFrame]) -> Mapping[str, pd.DataFrame]:
    """All tables by name: the collected ones, and the derived ones, each of which is filled when it is first read."""
    return _Tables(collected)


class _Tables(Mapping[str, pd.DataFrame]):
    """A table that others are derived from is filled once."""

    def __init__(self, collected: Mapping[str, pd.DataFrame]) -> None:
        self._filled = dict(collected)
        self._names = (*collected, *DERIVED)

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self._filled:
            self._filled[name] = DERIVED[name].fill(self)
        return self._filled[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

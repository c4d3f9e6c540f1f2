"""Tables on disk: parquet to read on, CSV to look at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

import pandas as pd
from pyarrow import Table as ArrowTable  # type: ignore[import-untyped]
from pyarrow import csv

from ckptbench.analysis.tables.registry import EVERY
from ckptbench.analysis.tables.schema import Table
from ckptbench.common.errors import RunFolderError, all_of
from ckptbench.common.remedies import blame

AGAIN = "collect the runs again (snakemake --profile local, which repeats no finished run)"


def write_tables(folder: Path, frames: Mapping[str, pd.DataFrame]) -> None:
    """Write `<name>.parquet` and `<name>.csv` of each frame into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in frames.items():
        frame.to_parquet(folder / f"{name}.parquet", index=False)
        # Arrow's own writer: pandas' takes ten times as long, and a study has millions of steps.
        csv.write_csv(ArrowTable.from_pandas(frame, preserve_index=False), folder / f"{name}.csv")


def read_tables(folder: Path, names: Iterable[str]) -> dict[str, pd.DataFrame]:
    """The tables of these names, with the types of their columns. Raises RunFolderError where some are missing or of
    another version, with a line for each."""
    wanted = list(names)
    frames = all_of(
        partial(_read, folder / f"{name}.parquet", EVERY[name].table) for name in wanted
    )
    return dict(zip(wanted, frames, strict=True))


def _read(path: Path, table: Table) -> pd.DataFrame:
    try:
        # Arrow's threads, where a process ends soon after they were started, abort it: seen with pyarrow 26.0.1.
        return table.sorted_frame(pd.read_parquet(path, use_threads=False))
    except (OSError, KeyError, TypeError, ValueError) as error:  # Arrow's own are of these types
        if isinstance(error, OSError) and error.errno is not None:
            words = f"cannot be read: {blame(error, path, AGAIN, reading=True)}"
        else:
            words = f"not the table of this version: {error}; {AGAIN}"
        raise RunFolderError(f"{path}: {words}") from error

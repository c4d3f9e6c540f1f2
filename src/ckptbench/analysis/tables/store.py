"""Tables on disk: parquet to read on, CSV to look at.

A Parquet file holds the SHA-256 of all of its bytes, with zeros in its place, so that no damage changes a figure unseen. Parquet's own
checksums, which other programs can verify, are of the pages only.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import partial
from io import BytesIO
from pathlib import Path

import pandas as pd
from pyarrow import Table as ArrowTable  # type: ignore[import-untyped]
from pyarrow import csv, parquet

from ckptbench.analysis.tables.registry import EVERY
from ckptbench.analysis.tables.schema import Table
from ckptbench.common.errors import RunFolderError, all_of
from ckptbench.common.remedies import blame

AGAIN = "collect the runs again (snakemake --profile local, which repeats no finished run)"
MARK = b"ckptbench-sha256:"
CHECKSUM = re.compile(MARK + b"([0-9a-f]{64})")
BLANK = MARK + b"0" * 64


def write_tables(folder: Path, frames: Mapping[str, pd.DataFrame]) -> None:
    """Write `<name>.parquet` and `<name>.csv` of each frame into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in frames.items():
        table = ArrowTable.from_pandas(frame, preserve_index=False)
        (folder / f"{name}.parquet").write_bytes(_parquet(table))
        # Arrow's own writer: pandas' takes ten times as long, and a study has millions of steps.
        csv.write_csv(table, folder / f"{name}.csv")


def _parquet(table: ArrowTable) -> bytes:
    """The file, with its checksum."""
    file = BytesIO()
    metadata = {**(table.schema.metadata or {}), b"checksum": BLANK}
    parquet.write_table(table.replace_schema_metadata(metadata), file, write_page_checksum=True)
    content = file.getvalue()
    return content.replace(BLANK, MARK + hashlib.sha256(content).hexdigest().encode(), 1)


def _is_whole(content: bytes) -> bool:
    """Whether these are the bytes that were written."""
    found = CHECKSUM.search(content)
    if found is None:
        return False
    blank = content.replace(found[0], BLANK, 1)
    return hashlib.sha256(blank).hexdigest().encode() == found[1]


def read_tables(
    folder: Path, names: Iterable[str], *, set_aside: bool = False
) -> dict[str, pd.DataFrame]:
    """The tables of these names, with the types of their columns.

    Raises RunFolderError with a line for each that is missing, damaged or of another version. With `set_aside` a damaged one is
    renamed, so that the workflow, which misses it, makes it again.
    """
    wanted = list(names)
    frames = all_of(
        partial(_read, folder / f"{name}.parquet", EVERY[name].table, set_aside=set_aside)
        for name in wanted
    )
    return dict(zip(wanted, frames, strict=True))


def _read(path: Path, table: Table, *, set_aside: bool) -> pd.DataFrame:
    try:
        content = path.read_bytes()
        if not _is_whole(content):
            raise RunFolderError(f"{path}: {_damaged(path, set_aside=set_aside)}")
        # Arrow's threads, where a process ends soon after they were started, abort it: seen with pyarrow 26.0.1.
        return table.sorted_frame(pd.read_parquet(BytesIO(content), use_threads=False))
    except (OSError, KeyError, TypeError, ValueError) as error:  # Arrow's own are of these types
        if isinstance(error, OSError) and error.errno is not None:
            words = f"cannot be read: {blame(error, path, AGAIN, reading=True)}"
        else:
            words = f"not the table of this version: {error}; {AGAIN}"
        raise RunFolderError(f"{path}: {words}") from error


def _damaged(path: Path, *, set_aside: bool) -> str:
    fault = "damaged, or of another version: its checksum is not that of its bytes"
    if not set_aside:
        return f"{fault}; remove it and {AGAIN}"
    aside = path.replace(path.with_name(f"{path.name}.damaged"))
    return f"{fault}; it is now {aside.name}, and the next start of the workflow makes it again"

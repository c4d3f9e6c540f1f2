"""Tables on disk: any damage is seen before a figure is made of it, and the workflow makes the table again."""

from __future__ import annotations

import random
from pathlib import Path

import pandas as pd
import pytest

from ckptbench.analysis.tables.store import read_tables, write_tables
from ckptbench.common.errors import RunFolderError
from ckptbench.report.figures import FIGURES
from ckptbench.report.figures.files import write_figure
from tests.decided_study import costs

NAME = "decision_costs"
DAMAGED = r"decision_costs\.parquet: damaged, or of another version: its checksum is not that of its bytes; "


@pytest.fixture
def table(tmp_path: Path) -> Path:
    write_tables(tmp_path, {NAME: costs()})
    return tmp_path / f"{NAME}.parquet"


def test_no_flipped_bit_is_read(table: Path) -> None:
    """Most bits are in the footer, which Parquet's own checksums leave out: its bits rename columns and make text of bytes."""
    whole, draws = table.read_bytes(), random.Random(7)
    for place in draws.sample(range(len(whole)), 300):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << draws.randrange(8)
        table.write_bytes(damaged)
        with pytest.raises(RunFolderError, match=DAMAGED):
            read_tables(table.parent, [NAME])


@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"\0" * 4096, None], ids=["empty", "short", "zeros", "cut"]
)
def test_no_other_damage_is_read(table: Path, content: bytes | None) -> None:
    table.write_bytes(table.read_bytes()[:-9] if content is None else content)
    with pytest.raises(RunFolderError, match=f"{DAMAGED}remove it and collect the runs again"):
        read_tables(table.parent, [NAME])


def test_other_programs_read_a_table_and_can_verify_its_pages(table: Path) -> None:
    frame = pd.read_parquet(table, page_checksum_verification=True, use_threads=False)
    own = read_tables(table.parent, [NAME])[NAME]
    pd.testing.assert_frame_equal(
        frame, own, check_dtype=False
    )  # text is of pandas' type or of Python's


def test_a_step_of_the_workflow_sets_a_damaged_table_aside(tmp_path: Path) -> None:
    """Snakemake makes what is missing, and nothing else would tell it."""
    for name in FIGURES["advice"].tables:
        (tmp_path / f"{name}.parquet").write_bytes(b"PAR1")
    with pytest.raises(RunFolderError) as refused:
        write_figure("advice", tmp_path, tmp_path / "advice")
    for line in str(refused.value).splitlines():
        assert line.endswith(".parquet.damaged, and the next start of the workflow makes it again")
    assert not list(tmp_path.glob("*.parquet"))

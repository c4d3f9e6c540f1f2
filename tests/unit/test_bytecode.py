"""An environment takes the bytecode of the same files from those beside it, and no other."""

from __future__ import annotations

import os
import py_compile
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from ckptbench.environments.bytecode import link_bytecode
from ckptbench.environments.folder import READY

PACKAGES = Path("lib", "python3.11", "site-packages", "a")


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """An environment with one compiled module."""
    source = tmp_path / "finished" / PACKAGES / "module.py"
    source.parent.mkdir(parents=True)
    source.write_text("x = 1\n")
    py_compile.compile(str(source))
    (tmp_path / "finished" / READY).write_text("{}")
    return source


def added(source: Path, environment: Path, *, same: bool = True) -> Path:
    """The module in another environment: as uv links it from its cache, or another file of the same content."""
    module = environment / PACKAGES / source.name
    module.parent.mkdir(parents=True)
    if same:
        module.hardlink_to(source)
    else:
        module.write_text(source.read_text())
    return module


def test_what_another_environment_has_compiled_of_the_same_file_is_linked(
    finished: Path, tmp_path: Path
) -> None:
    module = added(finished, tmp_path / "new")
    assert link_bytecode(tmp_path / "new") == 1
    compiled = [Path(cache_from_source(str(path))) for path in (finished, module)]
    assert os.path.samefile(*compiled)


def test_another_file_is_compiled_anew(finished: Path, tmp_path: Path) -> None:
    module = added(finished, tmp_path / "new", same=False)
    assert link_bytecode(tmp_path / "new") == 0
    assert not Path(cache_from_source(str(module))).exists()


def test_nothing_is_taken_from_an_environment_that_is_not_finished(
    finished: Path, tmp_path: Path
) -> None:
    (tmp_path / "finished" / READY).unlink()
    added(finished, tmp_path / "new")
    assert link_bytecode(tmp_path / "new") == 0


def test_what_is_compiled_already_stays(finished: Path, tmp_path: Path) -> None:
    module = added(finished, tmp_path / "new")
    own = Path(py_compile.compile(str(module)) or "")
    before = own.stat()
    assert link_bytecode(tmp_path / "new") == 0
    assert os.path.samestat(own.stat(), before)


def test_what_the_other_environment_has_not_compiled_is_left_to_be_compiled(
    finished: Path, tmp_path: Path
) -> None:
    Path(cache_from_source(str(finished))).unlink()
    added(finished, tmp_path / "new")
    assert link_bytecode(tmp_path / "new") == 0

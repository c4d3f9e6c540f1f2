"""The study that config files ask for: the config, checked, and its cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ckptbench
from ckptbench.common.errors import ConfigError
from ckptbench.config.expansion import expand
from ckptbench.config.feasible import check_files
from ckptbench.config.reading import ConfigFiles, FieldError
from ckptbench.config.section import checked
from ckptbench.config.study import AVAILABLE, StudyConfig
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.registry import environment_of


def check_source(folder: Path) -> None:
    """Raises ConfigError where this code is another than that of the clone at `folder`.

    So it is with a virtual environment of another clone: it would plan by the one and train by the other.
    """
    own = Path(ckptbench.__file__).parent
    theirs = folder / "src" / "ckptbench"
    if theirs.is_dir() and not theirs.samefile(own) and _source(theirs) != _source(own):
        raise ConfigError(
            f"{own}: Python has this code of ckptbench, which differs from that in {theirs}: make .venv in this clone "
            "(make environment), and use its programs"
        )


def _source(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.py")}


def plan_study(
    content: Mapping[str, Any],
    paths: Sequence[Path],
    datasets: Path,
) -> tuple[StudyConfig, list[Cell]]:
    """The config and its cells, in the order to run them.

    `content` is merged from the config files at `paths` and the command line; `datasets` is the folder of datasets that were made
    before. Raises ConfigError with one line for each fault: files, field, value and remedy.
    """
    sources = ConfigFiles.read(content, paths)
    config = checked(StudyConfig, sources)
    try:
        cells = expand(config)
        check_files(cells, config, datasets)
    except ConfigError as error:
        raise ConfigError(sources.explain(error)) from None
    return config, cells


def leave_out(
    config: StudyConfig, cells: Sequence[Cell], obstacle: Callable[[str], str | None]
) -> tuple[list[Cell], str]:
    """The cells that can train here, and a sentence on the others, where the config asks for `available` ones; else all, and "".

    `obstacle` says what an environment needs that is not on this machine. Raises ConfigError where no cell is left.
    """
    if AVAILABLE not in config.matrix.framework:
        return [*cells], ""
    needs = {
        name: None if name.removesuffix("-cuda") in config.environments else obstacle(name)
        for name in dict.fromkeys(cell.environment for cell in cells)
    }
    names: dict[str, list[str]] = {}
    for cell in cells:
        if need := needs[cell.environment]:
            own = cell.environment.startswith(f"{environment_of(cell.framework)}_")
            name = f"{cell.framework} with {cell.recovery.name}" if own else cell.framework
            names.setdefault(need, []).append(name)
    words = "; ".join(f"{', '.join(dict.fromkeys(each))}, which needs {need}" for need, each in names.items())  # fmt: skip
    left = [cell for cell in cells if not needs[cell.environment]]
    if not left:
        raise FieldError(
            ("matrix", "framework"),
            f"none of its frameworks can train on this machine: {words}",
            config.matrix.framework,
        )
    return left, f"Left out: {words}." if words else ""

"""The study of an own training that config files ask for: the config, checked, and its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ckptbench.common.errors import ConfigError, LaunchError
from ckptbench.config.reading import ConfigFiles
from ckptbench.own.cell import OwnCell, expand_own
from ckptbench.own.config import OwnConfig, load_own_config
from ckptbench.own.surroundings import check_program, of_command


def plan_own(
    content: Mapping[str, Any],
    paths: Sequence[Path],
    *,
    environment: Mapping[str, str] | None,
) -> tuple[OwnConfig, list[OwnCell]]:
    """The config and its runs, in their order. `environment` is that of the workflow; None: programs are looked for elsewhere, on
    the nodes of a cluster.

    Raises ConfigError with one line for each fault: file, field, value and remedy.
    """
    config = load_own_config(content, paths)
    try:
        cells = expand_own(config)
    except ConfigError as error:
        raise ConfigError(ConfigFiles.read(content, paths).explain(error)) from None
    if environment is not None:
        try:
            for cell in {cell.words("")[0]: cell for cell in cells}.values():
                check_program(cell, of_command(cell, environment, ""))
        except LaunchError as error:
            raise ConfigError(f"{ConfigFiles.read(content, paths).names}: {error}") from None
    return config, cells

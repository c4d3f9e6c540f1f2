"""The native copy of checkpoints, compiled where ckptbench is installed. Without a C compiler NumPy copies in its place."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("src/ckptbench/checkpointing/copying.c")
LIBRARY = SOURCE.with_name("libcopying.so")


class CompileCopying(BuildHookInterface):  # type: ignore[type-arg]
    """Put the library beside its source, from where a wheel takes it and an editable installation loads it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        library = Path(self.root) / LIBRARY
        new = library.with_name(f"{LIBRARY.name}.{os.getpid()}")  # others may have it loaded
        compiler = os.environ.get("CC", "cc")
        command = [*compiler.split(), "-O3", "-shared", "-fPIC", "-o", str(new), str(SOURCE)]
        try:
            subprocess.run(command, cwd=self.root, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            library.unlink(missing_ok=True)
            self.app.display_warning(f"checkpoints will be copied by NumPy: {error}")
            return
        new.replace(library)
        build_data["artifacts"].append(str(LIBRARY))
        build_data["pure_python"] = False
        build_data["tag"] = (
            f"py3-none-{sysconfig.get_platform().translate(str.maketrans('-.', '__'))}"
        )

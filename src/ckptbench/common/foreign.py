"""What a site's modules set for programs of another Python: here, it would take the place of what ckptbench was installed with."""

from __future__ import annotations

import os
import sys

VARIABLES = (
    *("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONPLATLIBDIR"),
    *("PIP_USER", "PIP_REQUIRE_VIRTUALENV", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT"),
)  # fmt: skip
"""No command of a rule and no target of make has them. A command that a user measures keeps all."""


def own_packages_first() -> None:
    """Let the packages of this environment go before those of PYTHONPATH, which may be of another Python or version.

    Call it before the first import of a package that is not part of Python.
    """
    named = {os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    if "PYTHONPATH" in os.environ:
        sys.path.sort(key=lambda path: os.path.abspath(path) in named)

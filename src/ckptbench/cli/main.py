"""The start of the command `ckptbench`. It imports little, so that it can say which packages are missing."""

from __future__ import annotations

import atexit
import gc
import os
import sys

from ckptbench.common.errors import CkptbenchError, for_reader
from ckptbench.common.foreign import own_packages_first
from ckptbench.common.remedies import in_one_line

EXTRA = ("click", "rich", "numpy", "scipy", "pandas", "pyarrow", "pydantic", "yaml", "vl_convert")
"""What the extra `decide` installs, by the names that are imported."""
INSTALL = 'pip install "ckptbench[decide]"'


def main() -> None:
    """Run the command. Exit status: 0 with an answer, 2 for wrong options, 1 for any other error."""
    own_packages_first()
    # A quarter of the time: the command ends before garbage matters, and Python need not look for it then either.
    gc.disable()
    atexit.register(gc.freeze)
    # Else pydantic reads the metadata of every installed package, to look for plugins.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if not any(each.startswith("--study") for each in sys.argv):
        # Only tables of a study are in its format. Where pandas finds it, it loads it, and that takes almost as long as all else.
        sys.modules.setdefault("pyarrow", None)  # type: ignore[arg-type]
    try:
        from ckptbench.cli.verbs import run

        sys.exit(run(sys.argv[1:]))
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in EXTRA:
            raise
        _fail(f"the package {missing.name} is not installed: {INSTALL}")
    except CkptbenchError as error:
        _fail(str(error))
    except BrokenPipeError:  # the reader of the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (OSError, MemoryError) as error:
        told = in_one_line(error)
        if told is None:
            raise
        _fail(told)


def _fail(words: str) -> None:
    print(for_reader(f"Error: {words}"), file=sys.stderr)
    sys.exit(1)

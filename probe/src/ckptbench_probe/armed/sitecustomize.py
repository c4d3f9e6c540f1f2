"""Python imports this at its start, as ckptbench-probe has put its folder first on PYTHONPATH.

It arms the process, takes its folder from `sys.path` again, and then imports the `sitecustomize` that it hides. Any Python may come by,
so the syntax is that of Python 2 as well.
"""

import os
import sys


def _arm(here):  # type: ignore[no-untyped-def]
    package = os.path.dirname(os.path.dirname(here))
    sys.path.insert(0, package)
    try:
        from ckptbench_probe import arm
    finally:
        sys.path.remove(package)
    arm.arm()


def _import_hidden():  # type: ignore[no-untyped-def]
    own = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", own)


_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [_path for _path in sys.path if os.path.abspath(_path) != _HERE]
if sys.version_info >= (3, 9):  # noqa: UP036
    _arm(_HERE)
_import_hidden()

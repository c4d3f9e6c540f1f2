"""The formulas of the page are those of Python, translated; what cannot be translated is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckptbench.common.errors import ConfigError
from ckptbench.decide import formulas
from ckptbench.report.page.translate import javascript

HEAD = "import numpy as np\n"


def test_a_function_is_translated() -> None:
    source = '''"""Words."""
import numpy as np
Floats = np.ndarray | float
LIMIT = 3.0
"""Words."""

def of(x: Floats, y_s: Floats) -> Floats:
    """Words."""
    longer = np.where(x <= LIMIT, -(x - 2), np.expm1(y_s) / x)
    return other(longer) - 1e-9

def other(x):
    return np.maximum(x, 0)
'''
    lines = javascript(source, "some.py").splitlines()
    assert lines[0] == '"use strict";'
    assert lines[3:] == [
        "const LIMIT = 3.0;",
        "function of(x, y_s) {",
        "  const longer = np.where(x <= LIMIT, -(x - 2), np.expm1(y_s) / x);",
        "  return other(longer) - 1e-09;",
        "}",
        "function other(x) {",
        "  return np.maximum(x, 0);",
        "}",
        "return { LIMIT, of, other };",
        "})();",
    ]


def test_every_formula_of_the_model_is_translated() -> None:
    path = Path(str(formulas.__file__))
    text = javascript(path.read_text(encoding="utf-8"), path.name)
    functions = [
        name
        for name, each in vars(formulas).items()
        if getattr(each, "__module__", None) == formulas.__name__
    ]
    assert "goodput" in functions
    assert all(text.count(f"function {name}(") == 1 for name in functions)


@pytest.mark.parametrize(
    "line",
    [
        "    return x // 2", "    return x ** 2", "    return x and 1", "    return True", "    return 'x'", "    return 0 < x < 1", "    return x if x else 1",
        "    return np.sum(x)", "    return x.part", "    return np.exp(x, out=x)", "    return x[0]", "    return", "    for y in x: pass", "    y, z = x", "    y += 1", "    print(x)",
    ],
)  # fmt: skip
def test_what_is_not_of_the_small_part_of_python_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(ConfigError, match=r"^some.py:3: the page cannot translate "):
        javascript(f"{HEAD}def of(x):\n{line}\n", "some.py")


@pytest.mark.parametrize(
    "head",
    ["def of(x, y=1): return x", "def of(*x): return x", "def of(*, x): return x", "class Of: pass", "LIMIT = [1]", "if np: pass", "LIMIT += 1"],
)  # fmt: skip
def test_other_definitions_are_refused(head: str) -> None:
    with pytest.raises(ConfigError, match=r"^some.py:2: "):
        javascript(HEAD + head, "some.py")

"""Find words that a reader of the field has to translate, in pages and in what commands print. codespell finds misspelt ones."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

TEXTS = ("*.md", "docs/*.md", "config/README.md", "probe/*.md", "plugins/*/*.md", "plugins/*/docs/*.md", "workflow/report/*.rst", "Makefile", "src/**/*.html")  # fmt: skip
SOURCES = ("src/**/*.py", "src/**/*.js", "probe/src/**/*.py", "plugins/*/src/**/*.py", "scripts/pages/*.py")  # fmt: skip
INSTEAD = {
    "anew": "again",
    "tell|tells|told|telling": "say, report, show, know",
    "strike|strikes|struck|striking": "fail, kill, hit, occur",
    "held": "kept, stored, compared",
    "is none|are none": "is not, there is no",
    "has it|have it": "contains, say",
    "so many|such as have": "that number of, those with",
    "alone": "only, by itself",
}
WORD = re.compile("|".join(rf"\b(?P<w{i}>{words})\b" for i, words in enumerate(INSTEAD)), re.IGNORECASE)  # fmt: skip
# Code, the names of events, the schedulers' word for held jobs, one rank alone, and the probe's verdict "cannot tell".
ALLOWED = re.compile(r"`[^`\n]*`|\{[^}\n]*\}|^#+ \w+$|\bheld (?:PBS )?(?:jobs?|arrays?)\b|\bcalled held\b|\btakes alone\b|\bcannot tell\b", re.IGNORECASE)  # fmt: skip
JAVASCRIPT = re.compile(r'"([^"\n]*)"|`([^`]*)`')


def main(root: Path = Path()) -> int:
    found = [line for pattern in (*TEXTS, *SOURCES) for path in sorted(root.glob(pattern)) for line in dialect(path)]  # fmt: skip
    print(*found, sep="\n", end="\n" if found else "")
    return bool(found)


def dialect(path: Path) -> Iterator[str]:
    for line, text in sentences(path, path.read_text(encoding="utf-8")):
        for found in WORD.finditer(ALLOWED.sub("`", text)):
            better = list(INSTEAD.values())[int((found.lastgroup or "w0")[1:])]
            yield f"{path}:{line}: {found[0]!r}: write {better}"


def sentences(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """Lines of a text; in a program the strings that have a space, without docstrings."""
    if path.suffix == ".py":
        nodes = list(ast.walk(ast.parse(text)))
        docstrings = {id(each.value) for each in nodes if isinstance(each, ast.Expr)}
        strings = (each for each in nodes if isinstance(each, ast.Constant) and id(each) not in docstrings)  # fmt: skip
        yield from ((each.lineno, each.value) for each in strings if isinstance(each.value, str) and " " in each.value)  # fmt: skip
    elif path.suffix == ".js":
        for found in JAVASCRIPT.finditer(text):
            words = found[1] or found[2] or ""
            if " " in words:
                yield text.count("\n", 0, found.start()) + 1, words.replace("`", "")
    else:
        yield from enumerate(text.splitlines(), 1)


if __name__ == "__main__":
    sys.exit(main())

"""Write what follows from the source: the generated parts of the pages, the schema of configs, the captions of tables.

`python -m scripts.write_pages`. On a page the part NAME stands between `<!--generated:NAME-->` and the next `<!--end-->`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ckptbench.config.study import schema
from ckptbench.trainers import page, table
from scripts.pages import project, registries, run_folder, settings, tables

ROOT = Path(__file__).resolve().parents[1]
PART = re.compile(r"(<!--generated:(\w+)-->\n).*?(?=<!--end-->)", re.DOTALL)
PARTS: dict[str, Callable[[], str]] = {
    **{model.__name__: partial(settings.fields, model) for model in settings.MODELS},
    "datasets": settings.datasets,
    "tables": tables.document,
    **registries.PARTS,
    **project.PARTS,
    **run_folder.PARTS,
    "trainers": lambda: page.document(table.read(ROOT / "docs" / "trainers.csv")),
}
"""What makes each part."""


def files() -> dict[Path, str]:
    """What each of the files has to hold."""
    pages = [ROOT / "config" / "README.md", *sorted(ROOT.glob("docs/*.md"))]
    folder = ROOT / "workflow"
    return {
        **{page: filled(page.read_text(encoding="utf-8")) for page in pages},
        folder / "schemas" / "config.schema.json": json.dumps(schema(), indent=2) + "\n",
        **{
            folder / "report" / f"table_{name}.rst": caption
            for name, caption in tables.captions().items()
        },
    }


def filled(page: str) -> str:
    """The page with all of its parts as they are now."""
    return PART.sub(lambda part: part[1] + PARTS[part[2]](), page)


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")

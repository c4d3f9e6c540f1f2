"""Write the JSON schemas of the config files from their models."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ckptbench.own.config import own_schema
from ckptbench.study.config import schema


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="workflow/schemas")
    folder = parser.parse_args().folder
    for name, content in {"config": schema(), "own": own_schema()}.items():
        path = folder / f"{name}.schema.json"
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

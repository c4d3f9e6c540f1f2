"""Write the JSON schema of the config file from its models."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ckptbench.study.config import schema


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path, help="workflow/schemas/config.schema.json")
    parser.parse_args().path.write_text(json.dumps(schema(), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

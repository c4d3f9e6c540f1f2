"""Make the environment of one framework from its lock file."""

from __future__ import annotations

import sys
from pathlib import Path

from ckptbench.common.processes import die_with_parent
from ckptbench.common.scripting import parser_of, run_script
from ckptbench.inputs.environments.create import create_environment


def main() -> int:
    parser = parser_of(__doc__, "--parent")
    parser.add_argument("lock", type=Path, help="envs/<name>.txt")
    parser.add_argument("folder", type=Path, help="the environment; replaced where it exists")
    parser.add_argument("--constraints", type=Path, required=True, help="for building from source")
    options = parser.parse_args()
    die_with_parent(options.parent)

    def work() -> None:
        create_environment(options.lock, options.constraints, options.folder.absolute())

    return run_script(work, options.log)


if __name__ == "__main__":
    sys.exit(main())

"""Jobs of a plain user, by processes of root: the interpreter of the tests may be out of a plain user's reach.

pbs_mom looks past processes of root: it takes a job of theirs for ended as soon as it has sent it a signal. So a job's
Python gives up its user, and keeps what it needs of root's rights.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from tests.cluster.pbs_conf import PREFIX

KEPT = "+dac_override,+fowner,+kill,+setuid"
"""To use files and processes of root, and to become root again."""
PYTHON = (
    f"setpriv --reuid=nobody --inh-caps={KEPT} --ambient-caps={KEPT} {shlex.quote(sys.executable)}"
)
AS_ROOT = f"""\
#!/bin/sh
exec setpriv --reuid=root {PREFIX}/bin/${{0##*/}} "$@"
"""


def path_with(folder: Path, *programs: str) -> str:
    """A line of a job's script: it asks PBS as root by these programs, and as a plain user by all others."""
    folder.mkdir(parents=True)
    for name in programs:
        (folder / name).write_text(AS_ROOT)
        (folder / name).chmod(0o755)
    return f"export PATH={shlex.quote(str(folder))}:$PATH"

"""What ckptbench-probe finds of each training in `examples`: a table, with the stall by the script's own clock and what the two checks say.

PYTHONPATH=.. python probe_examples.py [NAME...]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from tests.study.probed_examples import TRAINED, Example, check_resume, check_saves
from tests.study.probed_training import Training, probed

COLUMNS = (
    *("example", "ranks", "steps", "saves", "stall ms", "its own clock ms", "hidden ms", "finished ms"),
    *("written back ms", "unsafe", "check saves", "check resume"),
)  # fmt: skip


def row(name: str, example: Example, folder: Path) -> list[str]:
    measured = probed(folder / "run", *example.command(), options=("--mtbf", "5h"))
    summary = measured.summary
    saves = check_saves(example, folder / "saves")
    resume = check_resume(example, folder / "resume")
    return [
        name,
        *(str(summary["ranks"]), str(summary["updates"]), str(len(summary["checkpoints"]))),
        milliseconds(statistics.median(measured.blocked_s())),
        milliseconds(statistics.median(measured.by_own_clock_s)),
        *(milliseconds(summary[key] and summary[key]["median"]) for key in ("hidden", "finished")),
        written_back(measured),
        "; ".join(line.partition(":")[0] for line in summary["unsafe"]) or "-",
        f"{saves['verdict']} ({len(saves['checkpoints'])})",
        f"{resume['verdict']}, killed at {resume['kill_at']}, resumed from {resume['resumed_from']}",
    ]


def milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.1f}"


def written_back(measured: Training) -> str:
    """The median of those that were seen, or why none was."""
    clean = measured.summary["clean"]
    if clean is not None:
        return f"{milliseconds(clean['median'])} ({clean['number']} seen)"
    return ", ".join(sorted({one["clean"] for one in measured.summary["checkpoints"]}))


def main() -> None:
    print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}", flush=True)
    for name in sys.argv[1:] or TRAINED:
        with tempfile.TemporaryDirectory() as folder:
            print(f"| {' | '.join(row(name, TRAINED[name], Path(folder)))} |", flush=True)


if __name__ == "__main__":
    main()

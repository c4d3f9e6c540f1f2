"""What a trainer loses, shown without the probe: a second proof of each `no` of docs/trainers.md.

    .environments/trainers_more/bin/python benchmarks/trainers_by_hand.py trainers/lightning/train.py --folder {folder}

runs the script to its end, twice; ends it hard after update 21; starts it again; and prints a digest of its weights at update 36 each time. With
`--stop-at 15`, it sends SIGTERM after update 15 instead, and prints which files are still written. Others spoil the save after update 12, start the training again, and print where it goes on:
`--kill`: SIGKILL at half of the writes of its largest file, by strace;
`--powercut`: a copy of the blocks of a new file system after the save; if that is resumed from, at half of that file;
`--fulldisk`: a tmpfs with room for a part of the save; if that does not fail, as an older file is emptied first, ENOSPC from half of that file on, by strace.
These need root and strace. Temporary files lie on the file system of the checkpoints.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hooked_trainer import DIED, FOLDER, ORDERS

ALONE = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29613"}  # fmt: skip
SMALL = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
SCRIPT = Path(__file__).with_name("hooked_trainer.py")
BEFORE, SAVED, AFTER = 11, 12, 15
"""Updates: the save after the second one is spoiled."""
CALLS = "write,pwrite64,writev,sendfile"
DISK_BYTES = 320 << 20


@dataclass(frozen=True)
class Ran:
    code: int
    weights: list[tuple[int, str]]
    """After which updates; first where it began."""


@dataclass(frozen=True)
class Trainer:
    command: list[str]
    again: list[str]
    ranks: int
    filesystem: str
    file: str

    def run(self, name: str, orders: str, folder: Path, around: Sequence[str] = (), *, resume: bool = False) -> Ran:  # fmt: skip
        words = [word.replace("{folder}", str(folder)) for word in (self.again if resume else self.command)]  # fmt: skip
        folder.parent.mkdir(parents=True, exist_ok=True)
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.ranks}"]
        own = [*around, sys.executable, *(launcher if self.ranks > 1 else []), str(SCRIPT), *words]
        variables = {**os.environ, **SMALL, **(ALONE if self.ranks == 1 else {}), "TMPDIR": os.environ.get("TMPDIR", str(folder.parent)), ORDERS: orders, FOLDER: str(folder)}  # fmt: skip
        done = subprocess.run(own, env=variables, capture_output=True, text=True, check=False)
        found = re.findall(r"^weights after update (\d+): (\w+)", done.stdout, re.MULTILINE)
        errors = [line[:160] for line in done.stderr.splitlines() if re.search(r"Error|Exception", line)]  # fmt: skip
        failed = done.returncode not in (0, DIED)
        print(f"{name}: exit code {done.returncode} {errors[-1] if failed and errors else ''}", flush=True)  # fmt: skip
        return Ran(done.returncode, [(int(at), weights) for at, weights in found])

    def resumed(self, folder: Path, before: Ran) -> bool:
        """Whether from a whole update, of what is left."""
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        print(f"  left: {', '.join(f'{path.relative_to(folder)} {path.stat().st_size}' for path in files)}")  # fmt: skip
        again = self.run("started again", "", folder, resume=True)
        at, weights = again.weights[0] if again.weights else (0, "no update made")
        is_whole = (at, weights) in before.weights
        print(f"  goes on from update {at}, {'with its weights' if is_whole else 'NOT with its weights'}: {weights}")  # fmt: skip
        return at > 0 and is_whole

    def strace(self, folder: Path, how: str) -> list[str]:
        """A command that does `how` at the call that writes the second half of the save's largest file, or of `file`, and at later ones on this path."""
        log = folder.parent.with_name("strace.txt")
        around = ["strace", "-f", "--seccomp-bpf", "-y", "-s0", "-o", str(log), f"--trace={CALLS},fsync,fdatasync,access"]  # fmt: skip
        self.run("traced", f"die:{AFTER}", folder, around)
        told = log.read_text()
        begun = told.index(f'"/update-{SAVED}"')
        calls = [*re.finditer(rf"\b({CALLS.replace(',', '|')})\(\d+<(.+?)>.*", told)]
        written = [call[2] for call in calls if call.start() > begun and call[2].startswith(f"{folder}/")]  # fmt: skip
        lost = {*written} - set(re.findall(r"sync\(\d+<(.+?)>", told[begun:]))
        print(f"  not synced: {', '.join(sorted(os.path.relpath(path, folder) for path in lost)) or 'nothing'}")  # fmt: skip
        there = [path for path in written if os.path.exists(path) and path.endswith(self.file)]
        if not there:
            raise SystemExit("its files get their names when they are whole")
        path = max(there, key=os.path.getsize)
        print(f"  {os.path.relpath(path, folder)} is written under this name: {os.path.getsize(path)} bytes")  # fmt: skip
        shutil.rmtree(folder)
        own = [call for call in calls if call.start() > begun and call[2] == path]
        half = own[(len(own) - 1) // 2]
        alike = [call for call in calls if call[1] == half[1] and f"<{path}>" in call[0]]
        return ["strace", "-f", "-o", "/dev/null", f"--trace={CALLS}", "-P", path, f"--inject={half[1]}:{how}:when={alike.index(half) + 1}+"]  # fmt: skip


@contextmanager
def mounted(place: Path, *words: str) -> Iterator[Path]:
    """The folder of checkpoints in it."""
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", *words, str(place)], check=True)
    try:
        (place / "checkpoints").mkdir(exist_ok=True)
        yield place / "checkpoints"
    finally:
        subprocess.run(["umount", str(place)], check=True)


def kill(trainer: Trainer, place: Path) -> None:
    folder = place / "checkpoints"
    trainer.resumed(folder, trainer.run("killed", "", folder, trainer.strace(folder, "signal=KILL")))  # fmt: skip


def powercut(trainer: Trainer, place: Path, around: Sequence[str] = ()) -> None:
    disk, left = place.with_name("disk"), place.with_name("left")
    with disk.open("wb") as file:
        file.truncate(DISK_BYTES)
    subprocess.run([f"mkfs.{trainer.filesystem}", "-q", str(disk)], check=True)
    with mounted(place, "-o", "loop", str(disk)) as folder:
        ran = trainer.run("power cut", f"sync:{BEFORE},die:{AFTER}", folder, around)
        with (place / "other").open("wb") as other:  # another program's fsync writes the journal
            os.fsync(other.fileno())
        subprocess.run(["cp", "--sparse=always", str(disk), str(left)], check=True)
    with mounted(place, "-o", "loop", str(left)) as folder:
        is_whole = trainer.resumed(folder, ran)
    if is_whole and not around:
        powercut(trainer, place, trainer.strace(folder, "signal=KILL"))


def fulldisk(trainer: Trainer, place: Path, around: Sequence[str] = ()) -> None:
    orders = f"fill:{BEFORE},die:{AFTER}" if not around else f"die:{AFTER}"
    with mounted(place, "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs") as folder:
        ran = trainer.run("full disk", orders, folder, around)
        (place / "ballast").unlink(missing_ok=True)
        is_whole = trainer.resumed(folder, ran)
    if is_whole and ran.code == DIED and not around:
        fulldisk(trainer, place, trainer.strace(folder, "error=ENOSPC"))


def restart(trainer: Trainer, place: Path, die_at: int, last: int) -> None:
    runs = {"whole": ("", "1"), "again": ("", "2"), "killed": (f"die:{die_at}", "3"), "killed resumed": ("", "3")}  # fmt: skip
    for name, (orders, folder) in runs.items():
        ran = trainer.run(name, orders, place / folder, resume=name == "killed resumed")
        told = {weights for at, weights in ran.weights if at == last}
        print(f"  weights after update {last}: {', '.join(sorted(told)) or 'none'}")


def stop(trainer: Trainer, place: Path, at: int) -> None:
    trainer.run("stopped", f"stop:{at}", place / "checkpoints")
    sent = (place / "signalled").stat().st_mtime_ns
    late = [path.name for path in (place / "checkpoints").rglob("*") if path.is_file() and path.stat().st_mtime_ns >= sent]  # fmt: skip
    print(f"  written after the signal: {', '.join(sorted(late)) or 'nothing'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--die-at", type=int, default=21)
    parser.add_argument("--digest-at", type=int, default=36)
    parser.add_argument("--stop-at", type=int)
    for act in (kill, powercut, fulldisk):
        parser.add_argument(f"--{act.__name__}", dest="act", action="store_const", const=act)
    parser.add_argument("--filesystem", choices=("ext4", "xfs"), default="ext4")
    parser.add_argument("--file", default="", help="in place of the largest file, as a pointer")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--resume", default="", help="arguments that resume it, if others")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    again = [options.command[0], *shlex.split(options.resume)] if options.resume else options.command  # fmt: skip
    trainer = Trainer(options.command, again, options.ranks, options.filesystem, options.file)
    place = Path(tempfile.mkdtemp(), "place")
    if options.act:
        options.act(trainer, place)
    elif options.stop_at:
        stop(trainer, place, options.stop_at)
    else:
        restart(trainer, place, options.die_at, options.digest_at)


if __name__ == "__main__":
    main()

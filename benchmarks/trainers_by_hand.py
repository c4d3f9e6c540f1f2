"""What a trainer loses, shown without the probe: a second proof of each `no` of docs/trainers.md.

    .environments/trainers_more/bin/python benchmarks/trainers_by_hand.py trainers/lightning/train.py --folder {folder}

runs the script to its end, twice; ends it hard after update 21; starts it again; and prints a digest of its weights at update 36 each time.
`--stop-at 15` sends it SIGTERM after update 15 instead, and prints which files it still writes. One rank; PyTorch or Keras.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import runpy
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ORDER = "CKPTBENCH_BY_HAND"
"""`die 21`, `stop 15` or `live 0`, and the update of the digest, for the process that trains."""
ALONE = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29613", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}  # fmt: skip
DIED = 9


def digest(arrays: Any) -> str:
    found = hashlib.sha256()
    for array in arrays:
        found.update(array.tobytes())
    return found.hexdigest()[:16]


def train(script: str, arguments: list[str]) -> None:
    """In the process that trains."""
    how, at, last = os.environ[ORDER].split()
    made = 0

    def updated(number: int, weights: Callable[[], Any]) -> None:
        nonlocal made
        made += 1
        if number == int(last):
            print(f"weights after update {number}: {digest(weights())}", flush=True)
        if made == int(at) and how == "die":
            os._exit(DIED)
        if made == int(at) and how == "stop":
            Path(os.environ["SIGNALLED"]).touch()
            os.kill(os.getpid(), signal.SIGTERM)

    try:
        _hook_torch(updated)
    except ImportError:
        _hook_keras(updated)
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).parent))
    runpy.run_path(script, run_name="__main__")


def _hook_torch(updated: Callable[[int, Callable[[], Any]], None]) -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    def after(optimizer: Any, *_: Any) -> None:
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        local = [weight.to_local() if hasattr(weight, "to_local") else weight for weight in weights]
        state = next(iter(optimizer.state.values()))
        updated(int(state["step"]), lambda: [each.detach().numpy() for each in local])

    register_optimizer_step_post_hook(after)


def _hook_keras(updated: Callable[[int, Callable[[], Any]], None]) -> None:
    from keras.src.callbacks.callback_list import CallbackList

    own = CallbackList.on_train_batch_end

    def ended(self: Any, *args: Any, **kwargs: Any) -> None:
        own(self, *args, **kwargs)
        updated(int(self.model.optimizer.iterations), self.model.get_weights)

    CallbackList.on_train_batch_end = ended


def run(name: str, order: str, command: list[str], folder: Path, last: int) -> None:
    words = [word.replace("{folder}", str(folder / name.split(maxsplit=1)[0])) for word in command]
    sent = folder / "signalled"
    variables = {**os.environ, **ALONE, ORDER: f"{order} {last}", "SIGNALLED": str(sent)}
    done = subprocess.run([sys.executable, __file__, *words], env=variables, capture_output=True, text=True, check=False)  # fmt: skip
    told = [line for line in done.stdout.splitlines() if line.startswith("weights after")]
    error = (done.stderr.strip().splitlines() or [""])[-1]
    print(f"{name:<16} exit code {done.returncode:<4} {'; '.join(told) or error}", flush=True)
    if order.startswith("stop"):
        files = [path for path in folder.rglob("*") if path.is_file() and path != sent]
        late = [str(path.relative_to(folder)) for path in files if path.stat().st_mtime_ns >= sent.stat().st_mtime_ns]  # fmt: skip
        print(f"written after the signal: {', '.join(sorted(late)) or 'nothing'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--die-at", type=int, default=21)
    parser.add_argument("--stop-at", type=int)
    parser.add_argument("--digest-at", type=int, default=36)
    parser.add_argument("--resume", default="", help="arguments that resume it, if others")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    again = [options.command[0], *shlex.split(options.resume)] if options.resume else options.command  # fmt: skip
    folder = Path(tempfile.mkdtemp())
    last = options.digest_at
    if options.stop_at:
        run("stopped", f"stop {options.stop_at}", options.command, folder, last)
        return
    run("whole", "live 0", options.command, folder, last)
    run("again", "live 0", options.command, folder, last)
    run("killed", f"die {options.die_at}", options.command, folder, last)
    time.sleep(1)  # for a thread's last write
    run("killed resumed", "live 0", again, folder, last)


if __name__ == "__main__":
    if ORDER in os.environ:
        train(sys.argv[1], sys.argv[2:])
    else:
        main()

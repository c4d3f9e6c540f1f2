"""A trainer's script in this process, of which each update prints a digest of the weights: for `trainers_by_hand.py`. PyTorch, Keras or Orbax."""

from __future__ import annotations

import hashlib
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

ORDERS, FOLDER = "CKPTBENCH_BY_HAND", "CKPTBENCH_BY_HAND_FOLDER"
"""What it does after which updates, as `sync:11,die:15`; and where its checkpoints lie."""
DIED = 9


def train(script: str, arguments: list[str]) -> None:
    """In the process that trains."""
    orders = dict(word.split(":")[::-1] for word in os.environ[ORDERS].split(",") if word)
    acts = {"die": _die, "stop": _stop, "sync": _sync, "fill": _fill}
    made = -1

    def updated(number: int, weights: Callable[[], Any] | None) -> None:
        """Before the first update, and after each. `weights`: None where they are not known yet."""
        nonlocal made
        made += 1
        if weights is not None:
            print(f"\nweights after update {number}: {digest(weights())}", flush=True)
        os.access(f"/update-{made}", os.F_OK)  # for strace to see
        if str(made) in orders:
            acts[orders[str(made)]](os.environ[FOLDER])

    for hook in (_hook_torch, _hook_keras, _hook_orbax):
        with suppress(ImportError):
            hook(updated)
            break
    else:
        raise SystemExit("no PyTorch, Keras or Orbax in this environment: no update would be seen")
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).parent))
    runpy.run_path(script, run_name="__main__")


def digest(arrays: Any) -> str:
    found = hashlib.sha256()
    for array in arrays:
        found.update(array.tobytes())
    return found.hexdigest()[:16]


def _hook_torch(updated: Callable[[int, Callable[[], Any] | None], None]) -> None:
    from torch.optim import optimizer as hooks

    def after(optimizer: Any, *_: Any) -> None:
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        local = [weight.to_local() if hasattr(weight, "to_local") else weight for weight in weights]
        state = next(iter(optimizer.state.values()), {"step": 0})
        updated(int(state["step"]), lambda: [each.detach().numpy() for each in local])

    def before(*args: Any) -> None:
        handle.remove()
        after(*args)

    hooks.register_optimizer_step_post_hook(after)
    handle = hooks.register_optimizer_step_pre_hook(before)


def _hook_keras(updated: Callable[[int, Callable[[], Any] | None], None]) -> None:
    from keras.src.callbacks.callback_list import CallbackList

    ends, begins = CallbackList.on_train_batch_end, CallbackList.on_train_batch_begin

    def ended(self: Any, *args: Any, **kwargs: Any) -> None:
        updated(int(self.model.optimizer.iterations), self.model.get_weights)
        ends(self, *args, **kwargs)

    def begun(self: Any, *args: Any, **kwargs: Any) -> None:
        CallbackList.on_train_batch_begin = begins
        updated(int(self.model.optimizer.iterations), self.model.get_weights)
        begins(self, *args, **kwargs)

    CallbackList.on_train_batch_end, CallbackList.on_train_batch_begin = ended, begun


def _hook_orbax(updated: Callable[[int, Callable[[], Any] | None], None]) -> None:
    """For a loop that calls the manager after each update."""
    import jax
    from orbax.checkpoint import CheckpointManager

    save, begun = CheckpointManager.save, False

    def saved(self: Any, step: int, *, args: Any) -> Any:
        nonlocal begun
        if not begun:
            begun = True
            updated(step - 1, None)
        done = save(self, step, args=args)
        updated(step, lambda: [jax.device_get(leaf) for leaf in jax.tree.leaves(args.item["weights"])])  # fmt: skip
        return done

    CheckpointManager.save = saved


def _die(_: str) -> None:
    time.sleep(1)  # for a thread's last write
    os._exit(DIED)


def _stop(folder: str) -> None:
    Path(folder, "..", "signalled").touch()
    os.kill(os.getpid(), signal.SIGTERM)


def _sync(folder: str) -> None:
    subprocess.run(["sync", "-f", folder], check=True)


def _fill(folder: str) -> None:
    """Leave room for a third of what lies there."""
    disk = os.statvfs(folder)
    free = disk.f_bfree - (disk.f_blocks - disk.f_bfree) // 3
    Path(folder, "..", "ballast").write_bytes(bytes(free * disk.f_frsize))


if __name__ == "__main__":
    train(sys.argv[1], sys.argv[2:])

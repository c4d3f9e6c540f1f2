"""Trains a few steps in each way that is named, and saves three times.

python probe_tearing.py WAY ...
"""

from __future__ import annotations

import contextlib
import copy
import io
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch import nn
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, AsyncSaveResponse

STEPS, SAVE_EVERY = 12, 4
THREADS: list[threading.Thread] = []
PENDING: list[Future[Any]] = []
State = dict[str, Any]


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> State:
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


def in_thread(call: Callable[..., Any], *args: Any) -> None:
    THREADS.append(threading.Thread(target=call, args=args))
    THREADS[-1].start()


def torch_sync(state: State, name: str) -> None:
    torch.save(state, "partial.pt")
    os.replace("partial.pt", name)


def torch_open_file(state: State, name: str) -> None:
    """What Python holds back of the file must not look like a file that is cut short."""
    with open(name, "wb", buffering=1 << 20) as file:
        torch.save(state, file)


def torch_behind(state: State, name: str) -> None:
    """The reader begins with the first."""
    with open(name, "wb") as file:
        torch.save({part: {} for part in state}, file, _use_new_zipfile_serialization=False)
        torch.save(state, file, _use_new_zipfile_serialization=False)


def torch_thread(state: State, name: str) -> None:
    in_thread(torch.save, state, name)


def torch_thread_shallow(state: State, name: str) -> None:
    in_thread(torch.save, {part: dict(one) for part, one in state.items()}, name)


def torch_thread_cloned(state: State, name: str) -> None:
    in_thread(torch.save, copy.deepcopy(state), name)


POOL = ThreadPoolExecutor(1)


def torch_pool(state: State, name: str) -> None:
    """The second save waits for the first, and its state meanwhile goes on."""
    PENDING.append(POOL.submit(lambda: torch.save({"model": state["model"]}, name)))


def torch_pool_cloned(state: State, name: str) -> None:
    torch_pool(copy.deepcopy(state), name)


BUFFERS: State = {}


def torch_pool_buffers(state: State, name: str) -> None:
    """The thread fills buffers that it was handed, and training waits for that."""
    if not BUFFERS:
        BUFFERS.update(copy.deepcopy(state))
    wait()
    copied = threading.Event()

    def save(buffers: State) -> None:
        for key, tensor in state["model"].items():
            buffers["model"][key].copy_(tensor)
        copied.set()
        torch.save(buffers["model"], name)

    PENDING.append(POOL.submit(save, BUFFERS))
    copied.wait()


def safetensors_thread(state: State, name: str) -> None:
    in_thread(save_file, dict(state["model"]), name)


def safetensors_thread_cloned(state: State, name: str) -> None:
    in_thread(save_file, copy.deepcopy(dict(state["model"])), name)


QUEUE: queue.Queue[tuple[State, str] | None] = queue.Queue()


def through_queue(state: State, name: str) -> None:
    """A thread that lives on takes them, a little late, as one that uploads the file before."""
    if not any(thread.is_alive() for thread in THREADS):
        in_thread(write_all)
    QUEUE.put((state, name))


def write_all() -> None:
    while (job := QUEUE.get()) is not None:
        time.sleep(0.3)
        torch.save(*job)


def queue_alias(state: State, name: str) -> None:
    through_queue(state, name)


def queue_cloned(state: State, name: str) -> None:
    through_queue(copy.deepcopy(state), name)


COUNTS: list[int] = []


def queue_counts(state: State, name: str) -> None:
    """All tensors are copies but the optimizer's count of steps, beside a list that grows."""
    COUNTS.append(len(COUNTS))
    steps = [slots["step"] for slots in state["optimizer"]["state"].values()]
    through_queue({"model": copy.deepcopy(state["model"]), "steps": steps, "seen": COUNTS}, name)


class Saver(threading.Thread):
    def __init__(self, state: State, name: str) -> None:
        super().__init__()
        self.state, self.file = state, name

    def run(self) -> None:
        time.sleep(0.3)
        torch.save(self.state, self.file)


def thread_of_a_class(state: State, name: str) -> None:
    """The weights as arrays, in the attributes of the thread."""
    THREADS.append(Saver({key: tensor.numpy() for key, tensor in state["model"].items()}, name))
    THREADS[-1].start()


def same_path(state: State, name: str) -> None:
    """The writer is slower than training."""
    PENDING.append(POOL.submit(torch.save, copy.deepcopy(state), "same_path-last"))


class WrittenAtClose(io.BytesIO):
    """As the files of object stores."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.name = path
        open(path, "wb").close()

    def close(self) -> None:
        if not self.closed:
            content = self.getvalue()
            super().close()
            with open(self.name, "wb") as file:
                file.write(content)


def late_file(state: State, name: str) -> None:
    with WrittenAtClose(name) as file:
        torch.save(state, file)


def late_file_fails(state: State, name: str) -> None:
    """The disk is full when the file is closed."""
    torch.save(state, file := WrittenAtClose(name))
    io.BytesIO.close(file)
    os.unlink(name)


def two_files(state: State, name: str) -> None:
    torch.save(state["model"], f"{name}.model")
    torch.save(state["optimizer"], f"{name}.optimizer")


def folder(state: State, name: str) -> None:
    """It is renamed once it is whole."""
    os.makedirs(f"{name}.part")
    for part, one in state.items():
        torch.save(one, f"{name}.part/{part}.pt")
    os.rename(f"{name}.part", name)


def colliding(state: State, name: str) -> dict[Any, Any]:
    weight, bias = state["model"]["0.weight"], state["model"]["0.bias"]
    return {7: weight, "7": bias, "a": {"b": bias}, "a.b": weight, "x/y": bias, ("x", "y"): weight}


def names(state: State, name: str) -> None:
    torch.save(colliding(state, name), name)


def names_thread(state: State, name: str) -> None:
    """Only one of two names that look alike is no copy."""
    live = colliding(state, name)
    in_thread(torch.save, {**copy.deepcopy(live), "7": live["7"]}, name)


OLDER: list[State] = []


def two_updates(state: State, name: str) -> None:
    """The weights are those of the save before."""
    OLDER.append(copy.deepcopy(state))
    torch.save({"model": OLDER[0]["model"], "optimizer": state["optimizer"]}, name)


def older_copy_too(state: State, name: str) -> None:
    """As a target network."""
    OLDER.append(copy.deepcopy(state))
    torch.save({**state, "target": OLDER[0]["model"]}, name)


def cast(state: State, name: str) -> None:
    """No update has such values, and an object of the program's own."""
    half = {key: tensor.bfloat16() for key, tensor in state["model"].items()}
    torch.save({"half": half, "random": torch.get_rng_state(), "by": Author("me")}, name)


@dataclass
class Author:
    name: str


def cut_short(state: State, name: str) -> None:
    """As on a full disk that nobody looks at."""
    with open(name, "wb") as file:
        torch.save(state, Short(file))


class Short:
    def __init__(self, file: Any) -> None:
        self.name = file.name
        self._file = file

    def write(self, data: Any) -> int:
        self._file.write(bytes(data)[: max(0, 20_000 - self._file.tell())])
        return len(data)

    def flush(self) -> None:
        self._file.flush()


def fails(state: State, name: str) -> None:
    with contextlib.suppress(RuntimeError):
        torch.save(state, f"no-such-folder/{name}")


def no_tensor(state: State, name: str) -> None:
    torch.save({"name": name}, name)


def dcp_sync(state: State, name: str) -> None:
    dcp.save(state, checkpoint_id=name)


def dcp_async(state: State, name: str, **options: Any) -> None:
    wait()
    PENDING.append(dcp.async_save(state, checkpoint_id=name, **options))


def dcp_url(state: State, name: str) -> None:
    dcp.save(state, checkpoint_id=f"file://{os.path.abspath(name)}")


def dcp_process(state: State, name: str) -> None:
    dcp_async(state, name, async_checkpointer_type=AsyncCheckpointerType.PROCESS)


STAGERS: dict[bool, DefaultStager] = {}


def stager(in_background: bool) -> DefaultStager:
    if in_background not in STAGERS:
        STAGERS[in_background] = DefaultStager(StagingOptions(False, False, in_background, False))
    return STAGERS[in_background]


def staging(state: State, name: str) -> AsyncSaveResponse:
    wait()
    response = dcp.async_save(state, checkpoint_id=name, async_stager=stager(True))
    PENDING.append(response.upload_completion)
    return response


def staging_awaited(state: State, name: str) -> None:
    staging(state, name).staging_completion.result()


def stager_reused_early(state: State, name: str) -> None:
    PENDING.append(dcp.async_save(state, checkpoint_id=name, async_stager=stager(False)))


def stager_reused(state: State, name: str) -> None:
    wait()
    stager_reused_early(state, name)


def point_to(name: str) -> None:
    """Each way has a pointer of its own."""
    with open(f"latest_{name.rpartition('-')[0]}", "w") as file:
        file.write(name)


def pointed_ahead(state: State, name: str) -> None:
    in_thread(torch.save, copy.deepcopy(state), name)
    point_to(name)


def pointed_behind(state: State, name: str) -> None:
    def write(state: State) -> None:
        torch.save(state, name)
        point_to(name)

    in_thread(write, copy.deepcopy(state))


def pointed_first(state: State, name: str) -> None:
    point_to(name)
    torch.save(state, name)


def pointed_last(state: State, name: str) -> None:
    torch.save(state, name)
    point_to(name)


def wait() -> None:
    while PENDING:
        PENDING.pop().result()


WAYS: dict[str, Callable[[State, str], Any]] = {
    one.__name__: one
    for one in (
        torch_sync, torch_open_file, torch_behind, torch_thread, torch_thread_shallow, torch_thread_cloned, torch_pool, torch_pool_cloned, torch_pool_buffers, safetensors_thread, safetensors_thread_cloned,
        queue_alias, queue_cloned, queue_counts, thread_of_a_class, same_path, late_file, late_file_fails, two_files, folder, names, names_thread, dcp_url,
        two_updates, older_copy_too, cast, cut_short, fails, no_tensor, dcp_sync, dcp_async, dcp_process, staging, staging_awaited,
        stager_reused_early, stager_reused, pointed_ahead, pointed_behind, pointed_first, pointed_last,
    )
}  # fmt: skip


def train(way: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
        if step % SAVE_EVERY == 0:
            WAYS[way](state_of(model, optimizer), f"{way}-{step}")
    QUEUE.put(None)
    for thread in THREADS:
        thread.join()
    QUEUE.queue.clear()
    wait()
    THREADS.clear()
    OLDER.clear()
    COUNTS.clear()
    BUFFERS.clear()
    print(f"{way} {sum(float(p.detach().double().sum()) for p in model.parameters()):.12f}")


def main() -> None:
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        port = str(own.getsockname()[1])
    os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    dist.init_process_group("gloo")
    for way in sys.argv[1:]:
        train(way)
    for each in STAGERS.values():
        each.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

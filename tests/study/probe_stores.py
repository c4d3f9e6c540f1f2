"""A small training that saves to an object store by fsspec, in the ways that are named, and goes on from what `latest` names.

python probe_stores.py URL WAY...
"""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import fsspec
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

UPDATES, SAVE_EVERY = 8, 2
PART = 5 << 20
"""Bytes of a part: the least that S3 takes."""
THREADS: list[threading.Thread] = []
PENDING: list[Any] = []

State = dict[str, Any]


@contextlib.contextmanager
def created(url: str) -> Iterator[Any]:
    """What s3fs has failed to upload, it tries once more when nobody has the file any more: a program that gives up must say so."""
    file = fsspec.open(url, "wb", default_block_size=PART).open()
    try:
        with file:
            yield file
    except Exception:  # noqa: BLE001 - botocore's have no class of Python's above them
        file.closed = True
        print("not saved")


def torch_file(state: State, url: str) -> None:
    with fsspec.open(f"{url}.pt", "wb") as file:
        torch.save(state, file)


def torch_thread(state: State, url: str) -> None:
    THREADS.append(threading.Thread(target=torch_file, args=(state, url)))
    THREADS[-1].start()


def in_parts(state: State, url: str) -> None:
    with created(f"{url}.pt") as file:
        torch.save({**state, "large": torch.ones(PART // 3)}, file)


def one_key(state: State, url: str) -> None:
    torch_file(state, url.rpartition("-")[0])


def dcp_url(state: State, url: str) -> None:
    with contextlib.suppress(dcp.CheckpointException):
        dcp.save(state, checkpoint_id=url, no_dist=True)


def dcp_async(state: State, url: str) -> None:
    wait()
    PENDING.append(dcp.async_save(state, checkpoint_id=url, no_dist=True))


def pointed_first(state: State, url: str) -> None:
    point_to(url)
    torch_file(state, url)


def pointed_last(state: State, url: str) -> None:
    torch_file(state, url)
    point_to(url)


def dcp_pointed(state: State, url: str) -> None:
    try:
        dcp.save(state, checkpoint_id=url, no_dist=True)
    except dcp.CheckpointException as error:
        print(f"{url} was not saved: {error.failures}")
    else:
        point_to(url)


WAYS: dict[str, Callable[[State, str], None]] = {
    one.__name__: one
    for one in (
        torch_file, torch_thread, in_parts, one_key, dcp_url, dcp_async, pointed_first, pointed_last, dcp_pointed,
    )
}  # fmt: skip


def point_to(url: str) -> None:
    """In one of the two ways by which programs write small objects."""
    folder, _, name = url.rpartition("/")
    way = name.partition("-")[0]
    if way == "pointed_first":
        fsspec.filesystem("s3").pipe(f"{folder}/latest_{way}", f"{name}.pt".encode())
    else:
        with fsspec.open(f"{folder}/latest_{way}", "w") as file:
            file.write(f"{name}.pt")


def wait() -> None:
    while PENDING:
        PENDING.pop().result()


def restored(model: nn.Module, optimizer: torch.optim.Optimizer, pointer: str) -> int:
    """The update to go on from."""
    try:
        with fsspec.open(pointer, "r") as file:
            name = file.read()
    except FileNotFoundError:
        return 0
    newest = f"{pointer.rpartition('/')[0]}/{name}"
    if name.startswith("dcp"):
        get_optimizer_state_dict(model, optimizer)  # it makes what DCP loads into
        state: State = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 0}
        dcp.load(state, checkpoint_id=newest.removesuffix(".pt"), no_dist=True)
    else:
        with fsspec.open(newest, "rb") as file:
            state = torch.load(file)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def train(folder: str, way: str) -> None:
    torch.manual_seed(0)
    model = nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters())
    begun = restored(model, optimizer, f"{folder}/latest_{way}")
    for step in range(begun + 1, UPDATES + 1):
        torch.manual_seed(step)
        optimizer.zero_grad()
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
        if step % SAVE_EVERY == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            WAYS[way](state, f"{folder}/{way}-{step}")
    wait()
    for thread in THREADS:
        thread.join()
    THREADS.clear()


def main() -> None:
    fsspec.get_filesystem_class("s3").retries = 1  # it waits longer before each try
    for way in sys.argv[2:]:
        train(sys.argv[1].rstrip("/"), way)
        gc.collect()  # the optimizer of one way must not live on beside that of the next


if __name__ == "__main__":
    main()

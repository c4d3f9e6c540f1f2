"""Trains five steps before each save, in the ways that are named, one after another, and five more at the end.

python probe_saves.py WAY...
"""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file, save_model
from torch import nn
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.utils.data import DataLoader

Save = Callable[[nn.Module], Iterator[None] | None]
"""Training goes on where it yields."""


def to_memory(model: nn.Module) -> None:
    torch.save(model.state_dict(), io.BytesIO())


def to_open_file(model: nn.Module) -> None:
    with open("open.pt", "wb") as file:
        torch.save(model.state_dict(), file)
        file.flush()
        os.fsync(file.fileno())


def in_thread(model: nn.Module) -> None:
    thread = threading.Thread(target=torch.save, args=(model.state_dict(), Path("thread.pt")))
    thread.start()
    thread.join()


def two_files(model: nn.Module) -> None:
    torch.save(model.state_dict(), "one.pt")
    save_file(dict(model.state_dict()), "two.safetensors")


def dcp_sync(model: nn.Module) -> None:
    dcp.save({"model": model.state_dict()}, checkpoint_id="dcp", no_dist=True)


def dcp_writer(model: nn.Module) -> None:
    dcp.save(
        {"model": model.state_dict()}, storage_writer=dcp.FileSystemWriter("writer"), no_dist=True
    )


def dcp_process(model: nn.Module) -> None:
    """The process that writes joins a group, so there must be one."""
    join_group()
    kind = AsyncCheckpointerType.PROCESS
    dcp.async_save(
        {"model": model.state_dict()}, checkpoint_id="process", async_checkpointer_type=kind
    ).result()


def join_group() -> None:
    if not torch.distributed.is_initialized():
        port = os.environ.get("PORT_OF_TEST", "0")
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK="0", WORLD_SIZE="1")
        torch.distributed.init_process_group("gloo")


class FullDisk(dcp.FileSystemWriter):
    def finish(self, *args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")


def dcp_fails(model: nn.Module) -> Iterator[None]:
    """In a thread, in a process, with staging of its own, and then one that ends well. Nobody looks at what has failed."""
    join_group()
    stager = DefaultStager(StagingOptions(False, False, True, False))
    ways: list[tuple[type[dcp.FileSystemWriter], dict[str, Any]]] = [
        (FullDisk, {}),
        (FullDisk, {"async_checkpointer_type": AsyncCheckpointerType.PROCESS}),
        (FullDisk, {"async_stager": stager}),
        (dcp.FileSystemWriter, {}),
    ]
    for number, (writer, options) in enumerate(ways, 1):
        started = dcp.async_save({"model": model.state_dict()}, storage_writer=writer(f"step-{number}"), **options)  # fmt: skip
        futures.wait([getattr(started, "upload_completion", started)])
        yield
    stager.close()


def beside_workers(*methods: str) -> Save:
    """Workers of a data loader import what the training does, and neither step nor save."""

    def save(model: nn.Module) -> None:
        for method in methods:
            loader = DataLoader(
                list(range(8)), batch_size=2, num_workers=1, multiprocessing_context=method
            )  # type: ignore[arg-type]
            assert sum(len(one) for one in loader) == 8
        torch.save(model.state_dict(), f"workers-{methods[-1]}.pt")

    return save


WAYS: dict[str, Save] = {
    "to_memory": to_memory,
    "to_path": lambda model: torch.save(model.state_dict(), "path.pt"),
    "to_open_file": to_open_file,
    "in_thread": in_thread,
    "two_files": two_files,
    "model_of_safetensors": lambda model: save_model(model, "model.safetensors"),
    "dcp_sync": dcp_sync,
    "dcp_writer": dcp_writer,
    "dcp_process": dcp_process,
    "dcp_fails": dcp_fails,
    "beside_workers": beside_workers("fork", "spawn"),
    "beside_forkserver": beside_workers("forkserver"),
}


def main() -> None:
    torch.manual_seed(0)
    model = nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters())

    def train() -> None:
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(8, 64)).sum().backward()
            optimizer.step()

    train()
    for way in sys.argv[1:]:
        for _ in WAYS[way](model) or ():
            train()
        train()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()

"""`torch.distributed.checkpoint`: `save`, and `async_save` in a thread or a process.

`async_save` calls `save` in another thread or process. A rank's files begin with its number; that of rank 0 is the commit record, `.metadata`.
"""

from __future__ import annotations

from typing import Any

from ckptbench_probe.engines.calls import then
from ckptbench_probe.engines.wrapping import at_end, saving
from ckptbench_probe.process import PROCESS
from ckptbench_probe.saves import Save
from ckptbench_probe.variables import seat


def patch(module: Any) -> None:
    module.save = saving(module.save, "dcp.save", target=target, owned=_owned)
    module.async_save = saving(
        module.async_save, "dcp.async_save", target=target, after=_follow, owned=_owned
    )
    # Objects make their state when they are asked for it. The inner call has it all.
    module._stateful_to_state_dict = then(module._stateful_to_state_dict, PROCESS.saves.add)


def target(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    name = kwargs.get("checkpoint_id") or getattr(kwargs.get("storage_writer"), "path", None)
    return None if name is None else str(name)


def _owned(name: str) -> bool:
    own = seat()
    rank = own.rank if own else 0
    return name.startswith(f"__{rank}_") or (rank == 0 and name.startswith(".metadata"))


def _follow(save: Save, result: Any) -> None:
    """`result` is a future, or has one for the copy and one for the upload."""
    staging = getattr(result, "staging_completion", None)
    upload = getattr(result, "upload_completion", result)
    if staging is None:
        PROCESS.saves.captured(save)
    else:
        at_end(staging, lambda failed: None if failed else PROCESS.saves.captured(save))
    at_end(upload, lambda failed: PROCESS.saves.finished(save, failed=failed))

"""Each way to save with PyTorch is one checkpoint, of the right kind, file and bytes."""

from __future__ import annotations

import socket
import statistics
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.study.probed_training import EXAMPLES, PYTORCH, ROOT, plain, probed

SAVING = Path(__file__).with_name("probe_saves.py")
LINEAR = 4 * (64 * 64 + 64)
"""Bytes of the weights."""
KERAS = ROOT / ".environments" / "tensorflow" / "bin" / "python"


@dataclass(frozen=True)
class Known:
    kinds: tuple[str, ...]
    files: tuple[str, ...]
    bytes: int = LINEAR
    background: bool = False
    synced: int = 0


WAYS = {
    "to_path": Known(("torch.save",), ("path.pt",)),
    "to_open_file": Known(("torch.save",), ("open.pt",), synced=1),
    "in_thread": Known(("torch.save",), ("thread.pt",), background=True),
    "two_files": Known(
        ("safetensors", "torch.save"), ("one.pt", "two.safetensors"), bytes=2 * LINEAR
    ),
    "model_of_safetensors": Known(("safetensors",), ("model.safetensors",)),
    "dcp_sync": Known(("dcp.save",), ("dcp",), synced=2),
    "dcp_writer": Known(("dcp.save",), ("writer",), synced=2),
    "dcp_process": Known(("dcp.async_save",), ("process",), background=True),
    "beside_workers": Known(("torch.save",), ("workers.pt",)),
}


def free_port() -> str:
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return str(own.getsockname()[1])


@pytest.mark.frameworks("pytorch")
@pytest.mark.parametrize("way", WAYS)
def test_a_save_is_one_checkpoint(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORT_OF_TEST", free_port())
    known = WAYS[way]
    training = probed(tmp_path, str(PYTORCH), str(SAVING), way)
    summary = training.summary
    (one,) = summary["checkpoints"]
    assert (summary["ranks"], summary["updates"], one["updates"]) == (1, 10, 5)
    assert tuple(one["kinds"]) == known.kinds
    assert tuple(Path(path).name for path in one["paths"]) == known.files
    assert one["bytes"] == {"float32": known.bytes}
    assert one["background"] is known.background
    assert (one["stall_s"] == 0) is (way == "in_thread")
    assert one["size"] >= known.bytes
    assert one["finished_s"] is not None
    assert len(training.events("synced")) == known.synced
    helpers = {"dcp_process": 1}.get(way, 0)
    assert summary["other_saves"] == helpers
    assert len(list(training.folder.glob("trace-*"))) == 1 + helpers


@pytest.mark.frameworks("pytorch")
def test_a_save_to_memory_is_no_checkpoint(tmp_path: Path) -> None:
    training = probed(tmp_path, str(PYTORCH), str(SAVING), "to_memory")
    assert training.summary["checkpoints"] == []
    assert "checkpoints   none was seen" in training.told


@pytest.mark.frameworks("pytorch")
def test_a_commit_record_of_dcp_that_is_synced_while_empty_is_told(tmp_path: Path) -> None:
    """PyTorch 2.13 syncs the file while Python still holds all of its content: a record below 8 KiB is empty then."""
    training = probed(tmp_path, str(PYTORCH), str(SAVING), "dcp_sync")
    (record,) = (
        one for one in training.events("synced") if Path(one["path"]).name == ".metadata.tmp"
    )
    assert record["size"] == 0
    assert (
        "DCP has synced .metadata before all of it was handed to the kernel (1 times)"
        in training.told
    )


@pytest.mark.frameworks("tensorflow")
def test_keras_is_measured_whole_and_gives_the_same_weights(tmp_path: Path) -> None:
    command = [str(KERAS), str(EXAMPLES / "keras_mlp.py")]
    training = probed(tmp_path, *command)
    alone = plain(tmp_path / "alone", *command)
    assert training.out.splitlines()[-1] == alone.splitlines()[-1] != ""
    summary = training.summary
    assert summary["updates"] == 40
    assert [one["updates"] for one in summary["checkpoints"]] == [10, 20, 30, 40]
    assert {kind for one in summary["checkpoints"] for kind in one["kinds"]} == {"keras"}
    own, seen = training.by_own_clock_s, training.blocked_s()
    difference = statistics.median(one - other for one, other in zip(own, seen, strict=True))
    assert abs(difference) <= max(0.002, 0.05 * statistics.median(own))
    weights = 64 * 512 + 512 + 512 * 512 + 512 + 512 * 10 + 10
    assert summary["checkpoints"][-1]["bytes"]["float32"] in range(
        3 * 4 * weights, 3 * 4 * weights + 100
    )

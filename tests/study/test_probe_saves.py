"""Each way to save is one checkpoint, of the right kind, file and bytes."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

import pytest

from ckptbench_probe.check.states import saves
from ckptbench_probe.reading import read
from tests.google_store import google_store
from tests.study.probed_training import Training, checked, cold, probed, warm
from tests.study.selection import FULL

SAVING = Path(__file__).with_name("probe_saves.py")
LINEAR = 4 * (64 * 64 + 64)
"""Bytes of the weights."""


@dataclass(frozen=True)
class Quantity:
    kinds: tuple[str, ...]
    files: tuple[str, ...]
    bytes: int = LINEAR
    background: bool = False
    synced: int = 0


WAYS = {
    "to_path": Quantity(("torch.save",), ("path.pt",)),
    "to_open_file": Quantity(("torch.save",), ("open.pt",), synced=1),
    "in_thread": Quantity(("torch.save",), ("thread.pt",), background=True),
    "two_files": Quantity(
        ("safetensors", "torch.save"), ("one.pt", "two.safetensors"), bytes=2 * LINEAR
    ),
    "model_of_safetensors": Quantity(("safetensors",), ("model.safetensors",)),
    "dcp_sync": Quantity(("dcp.save",), ("dcp",), synced=2),
    "dcp_writer": Quantity(("dcp.save",), ("writer",), synced=2),
    "dcp_process": Quantity(("dcp.async_save",), ("process",), background=True),
    "beside_workers": Quantity(("torch.save",), ("workers-spawn.pt",)),
}
if FULL:  # a worker that starts anew, as that of `spawn` does
    WAYS["beside_forkserver"] = Quantity(("torch.save",), ("workers-forkserver.pt",))


TO_MEMORY, FAILING, FAILING_SAVES = "to_memory", "dcp_fails", 4
"""Ways beside these, of no checkpoint and of several."""


def free_port() -> str:
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return str(own.getsockname()[1])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Training:
    """All ways, one after another, in one process."""
    folder = tmp_path_factory.mktemp("saves")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PORT_OF_TEST", free_port())
        return probed(folder, warm("pytorch", "run"), str(SAVING), *WAYS, TO_MEMORY, FAILING)


@pytest.mark.frameworks("pytorch")
@pytest.mark.parametrize("way", WAYS)
def test_a_save_is_one_checkpoint(way: str, saved: Training) -> None:
    known = WAYS[way]
    updates = 5 * (list(WAYS).index(way) + 1)
    (one,) = (each for each in saved.summary["checkpoints"] if each["updates"] == updates)
    assert tuple(one["kinds"]) == known.kinds
    assert tuple(Path(path).name for path in one["paths"]) == known.files
    assert one["bytes"] == {"float32": known.bytes}
    assert one["background"] is known.background
    assert (one["stall_s"] == 0) is (way == "in_thread")
    assert one["size"] >= known.bytes
    assert one["finished_s"] is not None
    synced = [
        event for event in saved.events("synced") if {*Path(event["path"]).parts} & {*known.files}
    ]
    assert len(synced) == known.synced


@pytest.mark.frameworks("pytorch")
def test_processes_that_write_or_load_beside_the_training_are_no_ranks(saved: Training) -> None:
    """That of DCP saves twice; those of data loaders leave no trace."""
    last = saved.summary["checkpoints"][-1]["updates"]
    assert (saved.summary["ranks"], saved.summary["updates"]) == (1, last + 10)
    assert saved.summary["other_saves"] == 2
    assert len(list(saved.folder.glob("trace-*"))) == 2


@pytest.mark.frameworks("pytorch")
def test_a_save_to_memory_is_no_checkpoint(saved: Training) -> None:
    to_memory = len(WAYS) + 1
    others = (n for n in range(1, to_memory + FAILING_SAVES + 1) if n != to_memory)
    assert [one["updates"] for one in saved.summary["checkpoints"]] == [5 * n for n in others]


@pytest.mark.frameworks("pytorch")
def test_a_commit_record_of_dcp_that_is_synced_while_empty_is_told(tmp_path: Path) -> None:
    """PyTorch 2.13 syncs the file while Python still holds all of its content: a record below 8 KiB is empty then."""
    command = [cold("pytorch"), str(SAVING), "dcp_sync"]
    training = probed(tmp_path, *command, options=("--syscalls",))
    (record,) = (
        one for one in training.events("synced") if Path(one["path"]).name == ".metadata.tmp"
    )
    assert record["size"] == 0
    assert (
        "DCP has synced .metadata before all of it was handed to the kernel (1 times)"
        in training.told
    )
    assert (
        "2 syncs by the program or its engine, of .distcp, .tmp, as strace shows" in training.told
    )


@pytest.mark.frameworks("pytorch")
def test_asynchronous_saves_that_fail_are_not_finished(saved: Training) -> None:
    """Though the program does not look at their futures."""
    checkpoints = saved.summary["checkpoints"][-FAILING_SAVES:]
    found = [(Path(*one["paths"]).name, one["failed"]) for one in checkpoints]
    assert found == [("step-1", True), ("step-2", True), ("step-3", True), ("step-4", False)]
    assert (
        f"3 of {len(WAYS) + FAILING_SAVES} checkpoints failed (step-1, step-2, step-3)"
        in saved.told
    )
    finished = saves(saved.folder)
    assert [finished[one["updates"]] for one in checkpoints] == [False, False, False, True]
    assert all(finished[5 * number] for number in range(1, len(WAYS) + 1))


@pytest.mark.frameworks("trainers")
def test_accelerate_and_fabric_are_measured(tmp_path: Path) -> None:
    """accelerate keeps one folder that it names itself, and removes it before it writes the next."""
    script = str(SAVING.with_name("probe_trainer_saves.py"))
    training = probed(tmp_path, warm("trainers", "run"), script)
    checkpoints = training.summary["checkpoints"]
    named = "project/checkpoints/checkpoint_"
    assert [
        (one["updates"], *one["kinds"], *(str(Path(path).relative_to(tmp_path.resolve())) for path in one["paths"]))
        for one in checkpoints
    ] == [
        (5, "accelerate", f"{named}0"),
        (10, "accelerate", f"{named}1"),
        (15, "accelerate", "state"),
        (20, "safetensors", "model/model.safetensors"),
        (25, "lightning.io", "fabric.ckpt"),
    ]  # fmt: skip
    for one in checkpoints:
        state = one["kinds"] == ["accelerate"]
        steps = 2 * 4 if state else 0  # of AdamW, of the two parameters
        assert one["bytes"]["float32"] == (3 * LINEAR if state else LINEAR) + steps
        assert one["finished_s"] == one["stall_s"] > 0
    assert [one["files"] for one in checkpoints] == [0, 3, 3, 1, 1]
    assert any(
        line.startswith("1 times the last whole checkpoint was removed")
        for line in training.summary["unsafe"]
    )


@pytest.mark.frameworks("jax")
def test_orbax_is_asked_once_whether_it_saves_and_a_save_that_fails_takes_no_end_of_another(
    tmp_path: Path,
) -> None:
    training = probed(tmp_path, cold("jax"), str(SAVING.with_name("probe_orbax_saves.py")))
    assert training.out.splitlines() == [
        "asked at [1, 2, 3, 4, 5, 6], saved at [2, 4, 6]",
        "StepAlreadyExistsError",
        "OSError",
    ]
    checkpoints = training.summary["checkpoints"]
    names = [str(Path(*Path(path).parts[-2:])) for one in checkpoints for path in one["paths"]]
    assert names == [
        *("own/2", "own/4", "own/6", "foreground/2", "foreground/4"),
        *("failing/1", "failing/1", "failing/2"),
        *("background/1", "background/2"),
    ]
    assert [one["failed"] for one in checkpoints] == [place in (6, 8) for place in range(10)]
    assert [one["background"] for one in checkpoints] == [True] * 3 + [False] * 2 + [True, False, True, True, True]  # fmt: skip
    for one in checkpoints:
        assert one["finished_s"] is not None
        assert one["bytes"] == (
            {}
            if "failing" in one["paths"][0] and one["failed"]
            else {"float32": 64 * 64 * 4, "int32": 4}
        )


@pytest.mark.frameworks("jax")
def test_a_save_by_orbax_to_an_object_store_is_measured_and_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    with google_store(root) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        program = str(SAVING.with_name("probe_orbax_store.py"))
        found = checked(tmp_path, "saves", "--", cold("jax"), program, str(root), "gs://checkpoints/run")  # fmt: skip
    assert found.report["verdict"] == "sound", found.told
    assert [one["update"] for one in found.report["checkpoints"]] == [1, 2, 4]
    (process,) = read(Path(found.report["runs"])).trained
    for save, step in zip(process.saves, (1, 2, 4), strict=True):
        own = [path for path in (root / f"checkpoints/run/{step}").rglob("*") if path.is_file()]
        assert (save.path, save.clean) == (f"gs://checkpoints/run/{step}", "uploaded")
        assert (save.files, save.size) == (len(own), sum(path.stat().st_size for path in own))
        assert save.finished_ns is not None

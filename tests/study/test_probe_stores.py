"""ckptbench-probe on trainings that save to an object store with S3's protocol: nothing that is not whole there is taken for whole."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ckptbench_probe.dangers import dangers
from ckptbench_probe.measures import Measures, measure
from ckptbench_probe.reading import ProbedRun, read
from tests.object_store import ObjectStore, object_store
from tests.study.probed_training import Checked, checked, cold, probed, warm

STORES = Path(__file__).with_name("probe_stores.py")
pytestmark = pytest.mark.frameworks("trainers")
SLOW_S = 1.0


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as store, pytest.MonkeyPatch.context() as patch:
        for name, value in store.environment.items():
            patch.setenv(name, value)
        yield store


@dataclass(frozen=True)
class Seen:
    checked: Checked
    run: ProbedRun
    measures: Measures
    unfinished: list[str]
    """Uploads in parts that were left in the store."""

    def verdicts(self, way: str) -> list[tuple[str, str]]:
        rows = [save for one in self.checked.report["checkpoints"] for save in one["saves"]]
        own = [one for one in rows if posixpath.basename(one["path"]).startswith(way)]
        return [(one["verdict"], one["text"]) for one in own]


@pytest.fixture(scope="module")
def seen(store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """All ways, one after another, in one process; of some, the store spoils a save."""
    store.fail("slow", "put", key="torch_file-4", wait_s=SLOW_S)
    store.fail("lose", "put", key="torch_file-6")
    store.fail("cut", "part", key="in_parts-4", first=2)
    store.fail("refuse", "part", key="in_parts-6", first=2)
    store.fail("lose", "part", key="in_parts-8")
    store.fail("lose", "put", key="one_key", first=2)
    store.fail("lose", "put", key="dcp_url-4/__0")
    store.fail("refuse", "put", key="dcp_url-6/")
    ways = ("torch_file", "torch_thread", "in_parts", "one_key", "dcp_url", "dcp_async", "pointed_first", "pointed_last")  # fmt: skip
    folder = tmp_path_factory.mktemp("check")
    words = ("--", warm("trainers", "check saves"), str(STORES), f"{store.url}/run", *ways)
    found = checked(folder, "saves", *words)
    assert found.out == "not saved\n" * 3
    run = read(Path(found.report["runs"]))
    left = store.unfinished()
    store.mend()
    return Seen(found, run, measure(run), left)


WHOLE = [("whole", f"the state of update {update}") for update in (2, 4, 6, 8)]


def test_what_is_whole_in_a_store_is_read_back(seen: Seen) -> None:
    for way in ("dcp_async", "pointed_first", "pointed_last"):
        assert seen.verdicts(way) == WHOLE, way
    assert seen.verdicts("in_parts")[0] == WHOLE[0]
    assert seen.checked.report["troubles"] == []
    assert seen.checked.report["command_exit_code"] == 0


def test_what_is_not_whole_in_a_store_is_never_taken_for_whole(seen: Seen) -> None:
    """Lost after it was acknowledged, refused, cut off, with a part missing, and torn by the training itself."""
    lost = seen.verdicts("torch_file")
    assert [*lost[:2], lost[3]] == [*WHOLE[:2], WHOLE[3]]
    assert lost[2][0] == "cannot tell"
    assert "FileNotFoundError" in lost[2][1]
    not_stored = "its upload was not finished: the store has no object of it, or an older one"
    assert seen.verdicts("in_parts")[1:] == [("cannot tell", not_stored)] * 3
    older = seen.verdicts("one_key")
    assert [verdict for verdict, _ in older] == ["whole", "TORN", "TORN", "TORN"]
    assert [text.partition(": ")[2] for _, text in older[1:]] == [f"of update 2 instead of {n}" for n in (4, 6, 8)]  # fmt: skip
    dcp = seen.verdicts("dcp_url")
    assert [dcp[0], dcp[3]] == [WHOLE[0], WHOLE[3]]
    assert dcp[1][1].startswith("its engine cannot read it (")
    assert dcp[2][1].startswith("the save has failed (")
    thread = seen.verdicts("torch_thread")
    assert thread[-1] == WHOLE[-1]
    assert {verdict for verdict, _ in thread[:-1]} == {"TORN"}


def test_the_upload_is_part_of_the_stall_and_its_bytes_are_those_in_the_store(
    seen: Seen, store: ObjectStore
) -> None:
    sizes = {f"{store.url}/{key}": size for key, size in store.objects().items()}
    found = {save.path: save for process in seen.run.trained for save in process.saves}
    slow = found[f"{store.url}/run/torch_file-4.pt"]
    assert slow.end_ns is not None
    assert (slow.end_ns - slow.start_ns) / 1e9 >= SLOW_S
    assert {slow.file_system, slow.clean} == {"s3", "uploaded"}
    large = found[f"{store.url}/run/in_parts-2.pt"]
    assert (large.files, large.size) == (1, sizes[large.path])
    for way in ("dcp_url", "dcp_async"):
        folder = found[f"{store.url}/run/{way}-2"]
        own = [size for key, size in sizes.items() if key.startswith(f"{folder.path}/")]
        assert (folder.files, folder.size) == (2, sum(own))
        assert folder.finished_ns is not None


def test_the_dangers_of_a_store_are_told_and_none_of_a_disk(seen: Seen) -> None:
    lines = dangers(seen.run, seen.measures)
    assert seen.unfinished == [f"run/in_parts-{update}.pt" for update in (4, 6, 8)]
    parts, early = (
        "3 uploads in parts were not finished (in_parts-4.pt, in_parts-6.pt, in_parts-8.pt)",
        "4 times latest_pointed_first was moved to an unfinished checkpoint",
    )
    assert [line for line in lines if line.startswith(parts)]
    assert [line for line in lines if line.startswith(early)]
    assert not [line for line in lines if "sync" in line or "latest_pointed_last" in line]


def test_a_training_resumes_from_a_store(store: ObjectStore, tmp_path: Path) -> None:
    command = (warm("trainers", "check resume"), str(STORES), f"{store.url}/resumed/{{folder}}", "pointed_last")  # fmt: skip
    seen = checked(tmp_path, "resume", "--kill-at", "5", "--until", "8", "--", *command)
    assert seen.report["verdict"] == "same", seen.told
    assert (seen.report["resumed_from"], seen.report["compared_until"]) == (4, 8)
    run = Path(seen.report["runs"]).name
    assert f"their checkpoints in {store.url}/resumed/{run}" in seen.out
    folders = {key.split("/")[2] for key in store.objects() if key.startswith(f"resumed/{run}/")}
    assert folders == {"checkpoints-undisturbed", "checkpoints-killed"}


def test_a_store_that_refuses_a_save_of_dcp_leaves_the_one_before(
    store: ObjectStore, tmp_path: Path
) -> None:
    command = (warm("trainers", "check resume"), str(STORES), f"{store.url}/refused/{{folder}}", "dcp_pointed")  # fmt: skip
    seen = checked(tmp_path, "fail", "--save", "2", "--", *command)
    assert seen.report["exit_code"] == 0, seen.lines
    assert seen.lines[1] == "a store that is busy (503): training goes on; resumed from 2; after save 3, resumed from 6"  # fmt: skip
    assert "not saved" in seen.lines[2]
    assert "Please reduce your request rate" in seen.lines[2]
    found = {key.split("/")[-2] for key in store.objects() if "/checkpoints-503/" in key}
    assert "dcp_pointed-2" in found
    assert "dcp_pointed-4" not in found


UPLOADS = """
import os, fsspec
from ckptbench_probe import session
os.makedirs("local/inner")
for name, size in (("a", 1000), ("inner/b", 200)):
    with open(f"local/{name}", "wb") as file:
        file.write(b"x" * size)
fs = fsspec.filesystem("s3")
with session() as s:
    for step in (1, 2):
        s.step()
        if step == 2:
            fs.pipe("URL/latest", b"step-2")
        with s.checkpoint(f"URL/step-{step}"):
            fs.put("local", f"URL/step-{step}", recursive=True)
            fs.put("local/a", f"URL/step-{step}/")
            fs.pipe({f"URL/step-{step}/c": b"30"})
        if step == 1:
            fs.pipe("URL/latest", b"step-1")
    s.step()
"""


def test_objects_that_are_stored_in_one_call_count(store: ObjectStore, tmp_path: Path) -> None:
    program = tmp_path / "uploads.py"
    program.write_text(UPLOADS.replace("URL", f"{store.url}/uploads"))
    training = probed(tmp_path, cold("trainers"), str(program))
    rows = training.summary["checkpoints"]
    assert [(one["files"], one["size"]) for one in rows] == [(3, 1202)] * 2
    stored = [size for key, size in store.objects().items() if key.startswith("uploads/step-1/")]
    assert sum(stored) == 1202
    assert "1 times latest was moved to an unfinished checkpoint" in training.told


def test_a_store_that_cannot_be_reached_is_said_in_one_line(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"{store.endpoint[:-5]}1")  # where nobody listens
    command = (warm("trainers", "check resume"), str(STORES), f"{store.url}/{{folder}}", "pointed_last")  # fmt: skip
    seen = checked(tmp_path, "resume", "--kill-at", "5", "--until", "8", "--", *command)
    assert seen.report["verdict"] == "cannot tell"
    assert "the undisturbed run failed: exit code 1, its last line: " in seen.lines[0]
    assert "Could not connect to the endpoint URL" in seen.lines[0]

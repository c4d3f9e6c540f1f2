"""The memory that is left: a limit of any control group above this process counts, in both versions of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from ckptbench.checkpointing import preflight
from ckptbench.common.errors import LaunchError
from ckptbench.common.memory import available_memory, control_group_headroom, free_shared_memory
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.registry import formats_of
from ckptbench.run.plan import Plan

GB = 10**9
V1_NONE = "9223372036854771712"


def machine(folder: Path, groups: str, *mounts: str) -> Path:
    """A process' folder in /proc. Each of `mounts` is root, mount point, type and options, in one word each."""
    (process := folder / "proc").mkdir()
    (process / "cgroup").write_text(groups)
    lines = []
    for each in mounts:
        root, point, kind, options = each.split()
        lines.append(
            f"31 22 0:28 {root} {folder / point} rw,relatime shared:9 - {kind} {kind} {options}\n"
        )
    (process / "mountinfo").write_text("".join(["22 1 0:1 / / rw - ext4 /dev/vda rw\n", *lines]))
    return process


def group_v2(folder: Path, limit: str, used: int, cached: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {cached}\nactive_file 0\n")


def group_v1(folder: Path, limit: str, used: int, cached: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.limit_in_bytes").write_text(f"{limit}\n")
    (folder / "memory.usage_in_bytes").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(
        f"cache 5\ntotal_inactive_file {cached}\ntotal_active_file 0\n"
    )


def test_the_own_group_counts_without_its_page_cache(tmp_path: Path) -> None:
    process = machine(tmp_path, "0::/job/step\n", "/ cg cgroup2 rw")
    group_v2(tmp_path / "cg/job/step", str(8 * GB), 7 * GB, cached=2 * GB)
    assert control_group_headroom(process) == 3 * GB


@pytest.mark.parametrize("above", ["", "job", "job/step"])
def test_the_tightest_of_a_group_and_those_above_counts(tmp_path: Path, above: str) -> None:
    process = machine(tmp_path, "0::/job/step/task\n", "/ cg cgroup2 rw,nsdelegate")
    for each in ("", "job", "job/step", "job/step/task"):
        group_v2(tmp_path / "cg" / each, "max", GB)
    group_v2(tmp_path / "cg" / above, str(4 * GB), GB)
    assert control_group_headroom(process) == 3 * GB


def test_a_group_that_is_over_its_limit_has_nothing_left(tmp_path: Path) -> None:
    process = machine(tmp_path, "0::/\n", "/ cg cgroup2 rw")
    group_v2(tmp_path / "cg", str(GB), 2 * GB)
    assert control_group_headroom(process) == 0


@pytest.mark.parametrize("above", ["slurm", "slurm/job"])
def test_version_1_counts_as_well_and_beside_version_2(tmp_path: Path, above: str) -> None:
    groups = "5:cpu,cpuacct:/other\n4:memory:/slurm/job\n0::/\n"
    process = machine(
        tmp_path, groups, "/ cpu cgroup rw,cpu,cpuacct", "/ mem cgroup rw,memory", "/ cg cgroup2 rw"
    )
    for each in ("", "slurm", "slurm/job"):
        group_v1(tmp_path / "mem" / each, V1_NONE, GB)
    group_v1(tmp_path / "mem" / above, str(4 * GB), 2 * GB, cached=GB)
    group_v1(tmp_path / "cpu/other", str(GB), GB)  # no hierarchy of memory
    assert control_group_headroom(process) == 3 * GB


def test_in_a_container_the_own_group_is_what_is_mounted(tmp_path: Path) -> None:
    process = machine(tmp_path, "4:memory:/docker/a1\n", "/docker/a1 mem cgroup rw,memory")
    group_v1(tmp_path / "mem", str(2 * GB), GB)
    assert control_group_headroom(process) == GB


@pytest.mark.parametrize("kind", ["no limit", "no files", "no groups"])
def test_without_a_limit_nothing_is_known(tmp_path: Path, kind: str) -> None:
    process = machine(tmp_path, "0::/job\n", "/ cg cgroup2 rw")
    if kind == "no limit":
        group_v2(tmp_path / "cg/job", "max", GB)
    if kind == "no groups":
        (process / "cgroup").unlink()
    assert control_group_headroom(process) is None


def test_this_machine_has_memory_and_shared_memory() -> None:
    available, shared = available_memory(), free_shared_memory()
    assert available is not None
    assert 1e6 < available < 1e13
    assert shared is None or shared >= 0


@pytest.mark.parametrize(
    ("framework", "ranks", "strategy", "least"),
    [
        ("chainer", 1, PluginSpec("native"), 0),
        ("chainer", 2, PluginSpec("native"), 12e6),
        ("pytorch", 2, PluginSpec("native"), 0),
        ("pytorch", 2, PluginSpec("dcp_async"), 0),
        ("pytorch", 2, PluginSpec("dcp_async", (("checkpointer", "process"),)), 2 * 8 * 51),
        ("pytorch", 2, PluginSpec("torch_checkpointing"), 8 * 51),
    ],
)
def test_shared_memory_is_needed_by_mpi_and_by_a_process_that_writes(
    make_plan: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch, *,
    framework: str, ranks: int, strategy: PluginSpec, least: float,
) -> None:  # fmt: skip
    plan = make_plan("e1")
    cell = dataclasses.replace(
        plan.cell, framework=framework, ranks=ranks, strategy=strategy,
        format=formats_of(framework, strategy.name)[0],
    )  # fmt: skip
    plan = dataclasses.replace(plan, cell=cell)
    needed = preflight.needed_shared_memory(plan, ranks)
    assert least <= needed <= 1.5 * least
    monkeypatch.setattr(preflight, "free_shared_memory", lambda: needed - 1)
    monkeypatch.setattr(preflight, "available_memory", lambda: None)
    if needed:
        with pytest.raises(
            LaunchError, match=r"2 ranks of linear need about .* free in /dev/shm, their shared"
        ):
            preflight.check(plan, ranks_here=ranks)

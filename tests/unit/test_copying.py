"""The native copy: the same bytes and the same checksum as NumPy and xxHash, whatever the pieces."""

from __future__ import annotations

import itertools
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hatchling.bridge.app import Application

from ckptbench.checkpointing import copying
from ckptbench.checkpointing.checksum import BLOCK_BYTES, Checksum
from hatch_build import LIBRARY, SOURCE, CompileCopying

ROOT = Path(__file__).resolve().parents[2]
NATIVE = (ROOT / SOURCE).read_text(encoding="utf-8")


def install(folder: Path) -> dict[str, Any]:
    """Compile the source below `folder` as an installation does. Returns what it says of the wheel."""
    told: dict[str, Any] = {"artifacts": []}
    hook = CompileCopying(str(folder), {}, None, None, str(folder), "wheel", Application())  # type: ignore[arg-type]
    hook.initialize("standard", told)
    return told


def compiled(folder: Path, source: str) -> Path:
    (folder / SOURCE.parent).mkdir(parents=True)
    (folder / SOURCE).write_text(source, encoding="utf-8")
    install(folder)
    return folder / LIBRARY


@pytest.fixture(scope="module", params=["as this machine is", "without AVX2"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    known = '__builtin_cpu_supports("avx2")'
    assert known in NATIVE
    without = request.param == "without AVX2"
    folder = tmp_path_factory.mktemp("native")
    return compiled(folder, NATIVE.replace(known, "0") if without else NATIVE)


@pytest.fixture
def library(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(built, monkeypatch)


def use(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "LIBRARY", library)
    monkeypatch.delenv(copying.WAY, raising=False)
    copying._library.cache_clear()
    monkeypatch.setattr(copying, "_library", copying._library.__wrapped__)


@pytest.mark.parametrize(
    "longest", [9, 300, 5_000, 300_000, 3 * BLOCK_BYTES], ids=lambda size: f"to {size} bytes"
)
@pytest.mark.usefixtures("library")
def test_the_copy_and_its_checksum_are_those_of_the_bytes(longest: int) -> None:
    draw = np.random.default_rng(longest)
    for _ in range(20):
        lengths = [0, *draw.integers(0, longest, draw.integers(1, 30)).tolist(), 0]
        lengths.insert(1, -sum(lengths) % 1024 or 1024)
        # From the second byte on, so that no piece is aligned.
        drawn = [bytearray(draw.bytes(each + 1)) for each in lengths]
        sources = [np.frombuffer(each, np.uint8)[1:] for each in drawn]
        target = copying.kept_memory(sum(lengths))
        copy = copying.NativeCopy(target, lengths)
        copy.copy([np.zeros_like(each) for each in sources])
        there = draw.random(len(lengths)) < 0.3
        edges = itertools.pairwise([0, *itertools.accumulate(lengths)])
        for source, is_there, (start, end) in zip(sources, there, edges, strict=True):
            if is_there:
                target[start:end] = source
        given = [
            None if is_there else source for source, is_there in zip(sources, there, strict=True)
        ]
        for changed in (0, 1):
            for source, place in zip(sources, given, strict=True):
                if place is not None:
                    np.bitwise_xor(source, changed, out=source)
            found = copy.copy(given)
            assert np.array_equal(target, np.concatenate(sources))
            expected = Checksum()
            expected.update(target.data)
            assert found == expected.hexdigest()


def test_a_copy_is_refused_into_memory_of_another_size() -> None:
    with pytest.raises(AssertionError):
        copying.NativeCopy(copying.kept_memory(2048), [1024])
    with pytest.raises(AssertionError):
        copying.NativeCopy(copying.kept_memory(1023), [1023])


def test_threads_share_the_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of PyTorch's OpenMP, of which each calls `work` with the same job."""

    asked: list[int] = []

    class FourThreads:
        @staticmethod
        def GOMP_parallel(work: object, job: object, threads: int, flags: int) -> None:  # noqa: N802
            asked.append(threads)
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(work, [job] * 4))  # type: ignore[arg-type]

    use(compiled(tmp_path, NATIVE), monkeypatch)
    monkeypatch.setattr(copying, "_openmp", FourThreads)
    source = np.frombuffer(np.random.default_rng(1).bytes(50 * BLOCK_BYTES), np.uint8)
    target = copying.kept_memory(source.nbytes)
    found = copying.NativeCopy(target, [source.nbytes]).copy([source])
    assert np.array_equal(target, source)
    expected = Checksum()
    expected.update(source.data)
    assert found == expected.hexdigest()
    assert asked == [0], "as many as PyTorch has"


@pytest.mark.parametrize("compiler", ["no-such-compiler", "false"])
def test_without_a_compiler_an_older_library_goes_and_numpy_copies(
    compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    library = compiled(tmp_path, NATIVE)
    assert library.exists()
    monkeypatch.setenv("CC", compiler)
    assert install(tmp_path) == {"artifacts": []}, "the wheel serves every machine"
    assert not library.exists()
    use(library, monkeypatch)
    assert not copying.has_c_copy()
    assert "install a C compiler" in caplog.text


def test_a_variable_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    use(copying.LIBRARY, monkeypatch)
    monkeypatch.setenv(copying.WAY, "numpy")
    assert not copying.has_c_copy()


def test_it_is_compiled_here() -> None:
    assert copying.LIBRARY.exists(), f"run `make environment`, which compiles it ({sys.prefix})"

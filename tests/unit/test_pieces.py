"""Shards of the state in files: who writes which elements, and what a file with the layout of safetensors holds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from ckptbench.checkpointing.pieces import (
    ALIGNMENT,
    Layout,
    Piece,
    pieces_in,
    read_pieces,
    shard_of,
    write_pieces,
)
from ckptbench.common.errors import CheckpointError
from ckptbench.common.small_floats import SMALL_FLOATS

TENSORS = [
    Layout(name="model/a.kernel", shape=(3, 5), dtype=np.dtype("float32")),
    Layout(name="model/a.bias", shape=(), dtype=np.dtype("float32")),
    Layout(name="optimizer/none", shape=(0, 4), dtype=np.dtype("float32")),
    Layout(name="optimizer/a.kernel", shape=(101,), dtype=np.dtype("float64")),
    Layout(name="optimizer/steps", shape=(), dtype=np.dtype("int64")),
]
SMALL = {"bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2"}
"""Types that NumPy lacks, and safetensors' names of them."""
TOTAL = sum(tensor.nbytes for tensor in TENSORS)


def values_of(tensor: Layout) -> np.ndarray:
    random = np.random.default_rng(len(tensor.name))
    return random.integers(0, 100, tensor.shape).astype(tensor.dtype)


def bytes_of(tensor: Layout) -> np.ndarray:
    return values_of(tensor).reshape(-1).view(np.uint8)


def written(path: Path, pieces: list[Piece]) -> Path:
    write_pieces(path, pieces, (bytes_of(piece.tensor)[piece.bytes] for piece in pieces))
    return path


@pytest.mark.parametrize("world_size", [1, 2, 3, 7, 100, 2000])
def test_every_element_is_written_once_and_all_ranks_write_alike(world_size: int) -> None:
    members = [shard_of(TENSORS, rank, world_size) for rank in range(world_size)]
    sizes = [sum(piece.nbytes for piece in shard) for shard in members]
    assert sum(sizes) == TOTAL
    assert max(sizes) - min(sizes) < 2 * 8
    for tensor in TENSORS:
        edges = [(p.start, p.stop) for shard in members for p in shard if p.tensor == tensor]
        assert edges == sorted(edges)
        assert [0, *(stop for _, stop in edges)] == [*(start for start, _ in edges), tensor.size]


def test_a_file_is_one_that_safetensors_opens(tmp_path: Path) -> None:
    pieces = shard_of(TENSORS, 0, 2)
    path = written(tmp_path / "shard", pieces)
    assert path.stat().st_size % ALIGNMENT == 0
    found = safetensors.numpy.load_file(path)
    assert found.keys() == {piece.key for piece in pieces}
    whole = pieces[0]
    assert found[whole.tensor.name].tobytes() == bytes_of(whole.tensor).tobytes()
    assert found[whole.tensor.name].shape == whole.tensor.shape
    cut = pieces[-1]
    assert (cut.is_whole, cut.key) == (False, f"optimizer/a.kernel[0:{cut.stop}]")
    assert found[cut.key].tobytes() == bytes_of(cut.tensor)[cut.bytes].tobytes()
    with safetensors.safe_open(path, framework="np") as file:
        assert json.loads(file.metadata()[cut.tensor.name]) == [101]


@pytest.mark.parametrize("name", SMALL)
def test_a_type_that_numpy_lacks_has_its_name_of_safetensors_and_is_read_again(
    tmp_path: Path, name: str
) -> None:
    tensor = Layout(name="w", shape=(3, 5), dtype=SMALL_FLOATS[name])
    pieces = [shard_of([tensor], rank, 2)[0] for rank in (0, 1)]
    for rank, piece in enumerate(pieces):
        values = np.arange(piece.nbytes, dtype=np.uint8)
        write_pieces(tmp_path / str(rank), [piece], [values])
        ((found, read),) = read_pieces(tmp_path / str(rank))
        assert (found, read.tobytes()) == (piece, values.tobytes())
        with safetensors.safe_open(tmp_path / str(rank), framework="np") as file:
            assert file.get_slice(piece.key).get_dtype() == SMALL[name]


def test_other_names_of_a_tensor_are_read_again_whole_or_cut(tmp_path: Path) -> None:
    tensors = [
        Layout(name="b", shape=(3, 5), dtype=np.dtype("uint8"), aliases=("z", "a")),
        Layout(name="c", shape=(4,), dtype=np.dtype("uint8")),
        Layout(name="[3, 5]", shape=(3,), dtype=np.dtype("uint8")),
        Layout(name="d", shape=(7,), dtype=np.dtype("uint8"), aliases=("e[0:2]",)),
    ]
    for rank in range(2):
        path, pieces = tmp_path / str(rank), shard_of(tensors, rank, 2)
        write_pieces(path, pieces, (np.zeros(piece.nbytes, np.uint8) for piece in pieces))
        assert pieces_in(path) == pieces
        with safetensors.safe_open(path, framework="np") as file:
            others = {other: each.tensor.name for each in pieces for other in each.tensor.aliases}
            assert others.items() <= file.metadata().items()


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_what_is_written_is_read_again(tmp_path: Path, rank: int) -> None:
    pieces = shard_of(TENSORS, rank, 3)
    found = [
        (each, values.copy()) for each, values in read_pieces(written(tmp_path / "shard", pieces))
    ]
    assert [piece for piece, _ in found] == pieces
    for piece, values in found:
        assert values.tobytes() == bytes_of(piece.tensor)[piece.bytes].tobytes()


def test_a_piece_is_read_into_the_memory_that_is_given_for_it(tmp_path: Path) -> None:
    pieces = shard_of(TENSORS, 1, 3)
    given = {piece.key: np.zeros(piece.nbytes, np.uint8) for piece in pieces[1:]}
    path = written(tmp_path / "shard", pieces)
    found = {piece.key: values for piece, values in read_pieces(path, lambda p: given.get(p.key))}
    assert found.keys() == {piece.key for piece in pieces}
    for piece in pieces[1:]:
        assert found[piece.key] is given[piece.key]
        assert given[piece.key].tobytes() == bytes_of(piece.tensor)[piece.bytes].tobytes()


def test_of_a_piece_only_the_part_that_is_asked_for_is_read(tmp_path: Path) -> None:
    pieces = shard_of(TENSORS, 1, 3)
    path = written(tmp_path / "shard", pieces)
    parts = {piece.key: piece.within(piece.start + 1, piece.stop - 1) for piece in pieces}
    memory = {part: np.empty(part.nbytes, np.uint8) for part in parts.values() if part.nbytes}
    assert memory
    found = list(read_pieces(path, memory.__getitem__, lambda piece: parts[piece.key]))
    assert [piece for piece, _ in found] == list(memory)
    for piece, values in found:
        assert values is memory[piece]
        assert values.tobytes() == bytes_of(piece.tensor)[piece.bytes].tobytes()


@pytest.mark.parametrize(
    ("start", "stop"), [(0, 20), (4, 9), (0, 7), (6, 20), (0, 3), (9, 20), (12, 20), (5, 5)]
)
def test_the_elements_of_a_piece_that_are_among_others(start: int, stop: int) -> None:
    layout = Layout(name="t", shape=(20,), dtype=np.dtype("int16"))
    within = Piece(tensor=layout, start=4, stop=9).within(start, stop)
    assert set(range(within.start, within.stop)) == set(range(4, 9)) & set(range(start, stop))
    assert 4 <= within.start <= within.stop <= 9


def test_a_file_with_more_tensors_than_one_call_can_write_is_whole(tmp_path: Path) -> None:
    many = [Layout(name=f"t{i}", shape=(3,), dtype=np.dtype("int32")) for i in range(3000)]
    pieces = shard_of(many, 0, 1)
    found = [
        (each, values.copy()) for each, values in read_pieces(written(tmp_path / "shard", pieces))
    ]
    assert [piece for piece, _ in found] == pieces
    assert all(v.tobytes() == bytes_of(p.tensor).tobytes() for p, v in found)


def test_a_file_that_is_there_already_is_not_written_over(tmp_path: Path) -> None:
    path = written(tmp_path / "shard", shard_of(TENSORS, 0, 1))
    with pytest.raises(FileExistsError):
        written(path, shard_of(TENSORS, 0, 1))


def header(entries: object) -> bytes:
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text


ONE = {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "its header would have 0 bytes"),
        ((2**60).to_bytes(8, "little"), "its header would have"),
        (header("text"), "its header cannot be read"),
        (header({"a": {**ONE, "dtype": "F8"}}) + b"x", "its header cannot be read .KeyError: 'F8'"),
        (header({"a": {"dtype": "U8"}}) + b"x", "its header cannot be read"),
        (header({"a": {**ONE, "data_offsets": [1, 2]}}) + b"xx", r"a lies at \[1, 2\], not at 0"),
        (header({"a": ONE}), r"it has \d+ bytes, its header speaks of"),
        (header({"a": ONE}) + b"xy", r"it has \d+ bytes, its header speaks of"),
        (header({"a[0:1]": ONE}) + b"x", "its header cannot be read .KeyError: 'a'"),
        (header({"__metadata__": {"a": "[1]"}, "a[0:2]": ONE}) + b"x", "no part of a tensor"),
        ((70_000).to_bytes(8, "little") + b"[" * 70_000, "its header cannot be read"),
    ],
)
def test_another_layout_is_refused_with_the_place(
    tmp_path: Path, content: bytes, words: str
) -> None:
    path = tmp_path / "shard"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"{path} is no shard of a checkpoint: .*{words}"):
        list(read_pieces(path))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("model/w[0:3]", "float32"), ("__metadata__", "float32"), ("w", "complex64"), ("w", ">f4"),
        ("w", "object"), ("w", "U3"), ("w", "M8[s]"),
    ],
)  # fmt: skip
def test_what_could_not_be_read_again_as_it_was_is_not_written(
    tmp_path: Path, name: str, dtype: str
) -> None:
    tensor = Layout(name=name, shape=(3,), dtype=np.dtype(dtype))
    piece = Piece(tensor=tensor, start=0, stop=3)
    with pytest.raises(CheckpointError, match="use the strategy native"):
        write_pieces(tmp_path / "shard", [piece], [np.zeros(piece.nbytes, np.uint8)])


@pytest.mark.parametrize("name", ["w[0]", "w[0:3] ", "[0:3]", "w[a:b]", "__metadata__x", 'é"\n'])
def test_any_other_name_is_read_again_as_it_was(tmp_path: Path, name: str) -> None:
    tensor = Layout(name=name, shape=(3,), dtype=np.dtype("uint8"))
    piece = Piece(tensor=tensor, start=0, stop=3)
    write_pieces(tmp_path / "shard", [piece], [np.arange(3, dtype=np.uint8)])
    assert pieces_in(tmp_path / "shard") == [piece]

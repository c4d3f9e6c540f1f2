"""The digest of a rank's part of a tensor, such that those of all parts add up to that of the whole, however it is sharded.

Each element is hashed with its place in the whole, and the sum counts: so no rank needs what another one has. Some ten times slower than `digest`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from math import prod
from typing import Any

from ckptbench_probe.check.state import digest

CHUNK = 1 << 15
"""Elements that are hashed at a time: few enough that PyTorch starts no threads."""
MIX = (-7046029254386353131, -4658895280553007687, -7723592293110705685)
"""Of SplitMix64 (Steele, Lea, Flood 2014), as signed numbers."""
BITS = 64
SIGN = "|"
"""Between the fields of a part, as it is written to the trace: `elements of the whole|offsets|sizes|hash`."""


def part(value: Any) -> str:
    """Of a tensor of PyTorch; of anything else, its digest."""
    if not hasattr(value, "data_ptr"):
        return digest(value)
    if hasattr(value, "placements"):
        return _of_dtensor(value)
    if hasattr(value, "__tensor_flatten__") or value.layout is not sys.modules["torch"].strided:
        return digest(value)
    shape = tuple(value.shape)
    return _written(shape, (0,) * len(shape), value.detach())


def _of_dtensor(value: Any) -> str:
    """Sums that are not reduced yet have no value of their own."""
    if any(one.is_partial() for one in value.placements):
        return digest(value)
    shape, local = tuple(value.shape), value.detach().to_local()
    (chunk,) = value.__create_chunk_list__() or (None,)
    offsets = (0,) * len(shape) if chunk is None or not local.numel() else tuple(chunk.offsets)
    return _written(shape, offsets, local)


def _written(shape: tuple[int, ...], offsets: tuple[int, ...], local: Any) -> str:
    fields = (str(prod(shape)), _listed(offsets), _listed(local.shape))
    return SIGN.join((*fields, f"{_hash(shape, offsets, local):016x}"))


def _listed(numbers: Any) -> str:
    return ",".join(map(str, numbers))


def _hash(shape: tuple[int, ...], offsets: tuple[int, ...], local: Any) -> int:
    torch = sys.modules["torch"]
    plain = local.cpu().resolve_conj().resolve_neg().contiguous()
    plain = torch.view_as_real(plain) if plain.is_complex() else plain.unsqueeze(-1)
    shape, offsets = (*shape, plain.shape[-1]), (*offsets, 0)
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[plain.element_size()]
    bits = plain.view(whole).reshape(-1)
    total = 0
    for begin in range(0, bits.numel(), CHUNK):
        own = bits[begin : begin + CHUNK].to(torch.int64)
        flat = torch.arange(begin, begin + len(own), dtype=torch.int64, device="cpu")
        total += int(_mixed(own ^ _mixed(_places(flat, tuple(plain.shape), offsets, shape))).sum())
    return total % (1 << BITS)


def _places(
    flat: Any, sizes: tuple[int, ...], offsets: tuple[int, ...], shape: tuple[int, ...]
) -> Any:
    """In the whole, of elements by their place in the part."""
    if sizes[1:] == shape[1:]:
        return flat + offsets[0] * prod(shape[1:])
    places, stride = 0, 1
    for size, offset, length in zip(sizes[::-1], offsets[::-1], shape[::-1]):
        places = places + (flat % size + offset) * stride
        flat, stride = flat // size, stride * length
    return places


def _mixed(numbers: Any) -> Any:
    """Multiplication wraps around; a shift to the right fills with the sign, which is masked."""
    step, first, second = MIX
    numbers = (numbers + 1) * step
    numbers = (numbers ^ ((numbers >> 30) & ((1 << 34) - 1))) * first
    numbers = (numbers ^ ((numbers >> 27) & ((1 << 37) - 1))) * second
    return numbers ^ ((numbers >> 31) & ((1 << 33) - 1))


@dataclass(frozen=True)
class Part:
    elements: int
    """Of the whole."""
    place: str
    sizes: int
    """Elements of the part."""
    hash: int


def _read(text: str) -> Part | None:
    """None of a digest, which is of a whole."""
    fields = text.split(SIGN)
    if len(fields) == 1:
        return None
    sizes = prod(map(int, filter(None, fields[2].split(","))))
    return Part(int(fields[0]), f"{fields[1]}{SIGN}{fields[2]}", sizes, int(fields[3], 16))


def gathered(texts: list[str]) -> str | None:
    """Of what each rank has of a tensor; None where that is no whole, or where ranks have different values of the same."""
    found = [_read(text) for text in texts]
    own = [one for one in found if one is not None]
    if not own or len(own) < len(found):
        return texts[0] if len(set(texts)) == 1 else None
    by_place = {one.place: one for one in own if one.sizes}
    values = list(by_place.values())
    alike = all(by_place[one.place].hash == one.hash for one in own if one.sizes)
    if not alike or sum(one.sizes for one in values) != own[0].elements:
        return None
    return f"{own[0].elements}{SIGN}{sum(one.hash for one in values) % (1 << BITS):016x}"

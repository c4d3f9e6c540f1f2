"""What lives beside the model with the shapes of its parameters: averages of the weights, target networks, earlier copies, in a module, a dict or a list."""

from __future__ import annotations

import gc
import sys
import weakref
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Callable, TypeVar

from ckptbench_probe.check.memory import place
from ckptbench_probe.check.state import Optimizers, bare, digest

FEWEST_ELEMENTS = 16
"""Smaller tensors may be anything."""
MOST_ENTRIES = 5000
"""Of a container that is looked into: a data set may be a list of tensors."""
MOST_CONTAINERS = 16
"""Whose own names are looked for."""
MOST_LOOKS = 20
Found = TypeVar("Found")


class Beside:
    """Each tensor by the name of the module or the container that has it. Several may have one name: they are compared as a set."""

    def __init__(self, optimizers: Optimizers) -> None:
        self._optimizers = optimizers
        self._found: list[tuple[str, weakref.ref[Any]]] = []

    def digests(self, look: bool) -> dict[str, list[str]]:
        """`look`: for what is new as well."""
        if look:
            self._find()
        found: dict[str, list[str]] = defaultdict(list)
        for name, known in self._found:
            tensor = known()
            if tensor is not None and _has_memory(tensor):
                found[name].append(digest(tensor))
        return {name: sorted(values) for name, values in found.items()}

    def _find(self) -> None:
        """What is known keeps its name, whatever else has it later."""
        names = {id(one): name for name, known in self._found if (one := known()) is not None}
        seen = _while_others_change(lambda: list(self._look()))
        self._found = [(names.get(id(one), name), weakref.ref(one)) for name, one in seen]

    def _look(self) -> Iterator[tuple[str, Any]]:
        if "torch" not in sys.modules:
            return
        own = [*self._optimizers.tensors().values()]
        trained = [one for one in own if getattr(one, "requires_grad", False)]
        shapes = {tuple(one.shape) for one in trained if one.numel() >= FEWEST_ELEMENTS}
        known = {id(one) for one in own}
        for root in self._optimizers.beside():
            named = [*root.named_parameters(), *root.named_buffers()]
            if any(tuple(tensor.shape) in shapes for _, tensor in named):
                for name, tensor in named:
                    known.add(id(tensor))
                    yield f"{type(root).__name__}.{bare(name)}", tensor
        taken = {place(one) for one in own} | {place(one.grad) for one in trained}
        loose = [
            one
            for one in _tensors()
            if tuple(one.shape) in shapes and id(one) not in known and place(one) not in taken
        ]
        yield from _named(loose)


def _while_others_change(look: Callable[[], Found]) -> Found:
    """What `look` finds, once no other thread has changed a dict meanwhile."""
    for _ in range(MOST_LOOKS - 1):
        try:
            return look()
        except RuntimeError:  # changed size during iteration
            continue
    return look()


def _tensors() -> list[Any]:
    """Plain ones, which no gradient flows through. Their types are asked, as `isinstance` may run code of an object."""
    torch = sys.modules["torch"]
    kinds = (torch.Tensor, torch.nn.Parameter)
    plain = [each for each in gc.get_objects() if type(each) in kinds]
    return [
        each
        for each in plain
        if each.layout is torch.strided and each.is_floating_point() and each.grad_fn is None
    ]


def _has_memory(tensor: Any) -> bool:
    """FSDP frees that of parameters that it has gathered, and keeps the tensors."""
    part = getattr(tensor, "_local_tensor", tensor)
    if part.device.type == "meta":
        return False
    needed = (part.numel() + part.storage_offset()) * part.element_size()
    return not part.numel() or (part.is_contiguous() and part.untyped_storage().size() >= needed)


def _named(tensors: list[Any]) -> Iterator[tuple[str, Any]]:
    """Those that a dict, a list or an attribute has, by its key and by the name of what has it: `average.0`. What only a variable of a function has is no state."""
    if not tensors:
        return
    wanted = {id(one) for one in tensors}
    held = []
    for container in gc.get_objects():
        if container is not tensors:
            held += [(key, one, container) for key, one in _entries(container) if id(one) in wanted]
    containers = list({id(one): one for _, _, one in held}.values())[:MOST_CONTAINERS]
    names = dict(_names(containers, but=[containers, tensors]))
    found: dict[int, tuple[str, Any]] = {}
    for key, tensor, container in held:
        start = names.get(id(container), "")
        own = f"[{key}]" if isinstance(key, int) and not start else f"{start}.{key}".strip(".")
        found[id(tensor)] = min(found.get(id(tensor), (own, tensor)), (own, tensor), key=_first)
    yield from found.values()


def _first(named: tuple[str, Any]) -> str:
    """Of several names the same in each run."""
    return named[0]


def _entries(container: Any) -> Iterable[tuple[Any, Any]]:
    """Of a dict or a list, without code of a class that derives from it."""
    if issubclass(type(container), dict):
        return list(dict.items(container)) if dict.__len__(container) <= MOST_ENTRIES else ()
    if issubclass(type(container), list):
        return enumerate(list.copy(container)) if list.__len__(container) <= MOST_ENTRIES else ()
    return ()


def _names(containers: list[Any], *, but: list[Any]) -> Iterator[tuple[int, str]]:
    for container in containers:
        for holder in gc.get_referrers(container):
            if any(holder is one for one in but):
                continue
            entries = _entries(holder) or _attributes(holder)
            key = next((key for key, value in entries if value is container), None)
            if isinstance(key, str):
                yield id(container), key
                break


def _attributes(holder: Any) -> Iterable[tuple[Any, Any]]:
    """Where Python keeps them without a dict."""
    if type(holder).__module__ in ("builtins", "types", "collections"):
        return ()
    try:
        return list(object.__getattribute__(holder, "__dict__").items())
    except AttributeError:
        return ()

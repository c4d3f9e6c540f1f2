"""The state of a training, read in its own process: every parameter, buffer and slot of its optimizers by name, random states, learning rates.

It only reads: nothing here draws a random number or changes a tensor.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import sys
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ckptbench_probe.check.trees import leaves

SLOT = "/"
"""Between the name of a parameter and that of its slot, as in `blocks.0.weight/exp_avg`."""
ESCAPED = {"~": "~0", SLOT: "~1"}
"""What a name of a parameter has in place of such a letter, as in a JSON pointer."""
WRAPPERS = ("module.", "_orig_mod.", "_forward_module.")
"""Prefixes of names that DDP, torch.compile, and Lightning add: their user knows the names without."""


def digest(value: Any) -> str:
    """32 hexadecimal digits: the same if and only if the bits are (blake2b). `value`: a tensor or an array on any device, or a plain value.

    Of a tensor that is spread over ranks, the part of this rank. Type and shape do not count. About 1 GB/s.
    """
    hashed = hashlib.blake2b(digest_size=16)
    _feed(hashed, value)
    return hashed.hexdigest()


def _feed(hashed: Any, value: Any) -> None:
    if hasattr(value, "__tensor_flatten__"):  # DTensor, and other tensors that are made of tensors
        for name in value.__tensor_flatten__()[0]:
            _feed(hashed, getattr(value, name))
    elif hasattr(value, "data_ptr"):
        _feed_tensor(hashed, value)
    elif hasattr(value, "addressable_shards"):
        _feed_jax(hashed, value)
    elif hasattr(value, "__array__"):
        hashed.update(sys.modules["numpy"].asarray(value).tobytes())
    else:
        hashed.update(repr(value).encode())


def _feed_tensor(hashed: Any, tensor: Any) -> None:
    """NumPy is not needed, and knows no bfloat16."""
    plain = tensor.detach()
    if plain.layout is not sys.modules["torch"].strided:
        plain = plain.to_dense()
    plain = plain.cpu().resolve_conj().resolve_neg().contiguous()
    size = plain.numel() * plain.element_size()
    if size:
        hashed.update((ctypes.c_char * size).from_address(plain.data_ptr()))


def _feed_jax(hashed: Any, array: Any) -> None:
    """Those parts of an array that this process has. A random key has its bits inside."""
    jax = sys.modules["jax"]
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    for shard in array.addressable_shards:
        hashed.update(sys.modules["numpy"].asarray(shard.data).tobytes())


class Optimizers:
    """The `torch.optim.Optimizer`s that have begun a step, the first of them first."""

    def __init__(self) -> None:
        self._known: list[weakref.ref[Any]] = []
        self._named = 0
        """Optimizers whose parameters have their names: to look for models takes up to a tenth of a second."""
        self._names: dict[int, str] = {}
        self._roots: list[weakref.ref[Any]] = []

    def add(self, optimizer: Any) -> bool:
        """Whether it is new."""
        if any(known() is optimizer for known in self._known):
            return False
        self._known.append(weakref.ref(optimizer))
        return True

    def alive(self) -> list[Any]:
        found = (known() for known in self._known)
        return [optimizer for optimizer in found if optimizer is not None]

    def tensors(self, of: Any = None, *, buffers: bool = True) -> dict[str, Any]:
        """Parameters and slots by name: of one optimizer, else of all, with the buffers of their models, and with parameters that no optimizer has.

        A parameter whose model is not found is named by its group and its place, `0.3`; of a second optimizer, `1:0.3`.
        """
        if self._named < len(self._known):
            self._named = len(self._known)
            self._names, self._roots = _names(list(_parameters(self.alive())))
        found: dict[str, Any] = {}
        for index, optimizer in enumerate(self.alive()):
            if of is None or of is optimizer:
                found.update(self._of(optimizer, f"{index}:" if index else ""))
        if of is None:
            for number, root in enumerate(root() for root in self._roots):
                if root is not None:
                    self._add_all(found, number, root, buffers=buffers)
        return found

    def _add_all(self, found: dict[str, Any], number: int, root: Any, *, buffers: bool) -> None:
        """Of a model, what is not found yet. A second buffer of the same name has the number of its model and its whole name."""
        more = root.named_buffers() if buffers else ()
        for whole, tensor in [*root.named_parameters(), *more]:
            name = self._names.get(id(tensor), bare(whole))
            if found.setdefault(name, tensor) is not tensor:
                found[f"{number}:{_escaped(whole)}"] = tensor

    def beside(self) -> list[Any]:
        """Modules that have no parameter of an optimizer, as an average of the weights, or a target network."""
        trained = {id(root()) for root in self._roots}
        return [root for root in _outermost_modules() if id(root) not in trained]

    def _of(self, optimizer: Any, prefix: str) -> Iterator[tuple[str, Any]]:
        for group, options in enumerate(optimizer.param_groups):
            for place, parameter in enumerate(options["params"]):
                name = self._names.get(id(parameter), f"{prefix}{group}.{place}")
                yield name, parameter
                slots = optimizer.state.get(parameter, {})
                yield from leaves(slots, name + SLOT)

    def rates(self) -> list[float]:
        """The learning rate of each group."""
        return [
            float(group["lr"])
            for optimizer in self.alive()
            for group in optimizer.param_groups
            if group.get("lr") is not None
        ]

    def step(self) -> int | None:
        """Updates since the training began, across restarts, by the slot `step` of the first optimizer; None where it has none."""
        for optimizer in self.alive()[:1]:
            steps = [slots["step"] for slots in optimizer.state.values() if "step" in slots]
            if steps:
                return max(int(step) for step in steps)
        return None


def _parameters(optimizers: list[Any]) -> Iterator[Any]:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            yield from group["params"]


def _names(parameters: list[Any]) -> tuple[dict[int, str], list[weakref.ref[Any]]]:
    """The name of each parameter in the model that has it, by its id; and those models, in the order of the parameters.

    Where two models have the same name, that of the second begins with its number, as `1:weight`.
    """
    order = {id(parameter): place for place, parameter in enumerate(parameters)}
    found = []
    for root in _outermost_modules():
        named = [(name, id(parameter)) for name, parameter in root.named_parameters()]
        places = [order[key] for _, key in named if key in order]
        if places:
            found.append((min(places), named, root))
    found.sort(key=lambda one: one[0])
    names: dict[int, str] = {}
    for number, (_, named, _) in enumerate(found):
        taken = set(names.values())
        often = Counter(bare(name) for name, _ in named)
        for whole, key in named:
            name = bare(whole) if often[bare(whole)] == 1 else _escaped(whole)
            names.setdefault(key, f"{number}:{name}" if name in taken else name)
    return names, [weakref.ref(root) for _, _, root in found]


def _outermost_modules() -> list[Any]:
    """Modules of PyTorch that are part of no other; none where a training does without PyTorch. Their types are asked, as `isinstance` may run code of an object."""
    if "torch" not in sys.modules:
        return []
    kind = sys.modules["torch"].nn.Module
    modules = [each for each in gc.get_objects() if issubclass(type(each), kind)]
    inner = {id(child) for each in modules for child in each.__dict__.get("_modules", {}).values()}
    return [each for each in modules if id(each) not in inner and "_modules" in each.__dict__]


def bare(name: str) -> str:
    while name.startswith(WRAPPERS):
        name = name.partition(".")[2]
    return _escaped(name)


def _escaped(name: str) -> str:
    return "".join(ESCAPED.get(letter, letter) for letter in name)


def random_states() -> dict[str, str]:
    """The digest of each random state that this process has: of Python, of NumPy's and PyTorch's global generators, of each GPU that is used."""
    found = {}
    random, numpy, torch = (sys.modules.get(name) for name in ("random", "numpy", "torch"))
    if random is not None:
        found["python"] = digest(random.getstate())
    if numpy is not None and "numpy.random" in sys.modules:
        name, keys, *rest = numpy.random.get_state()
        found["numpy"] = digest((name, keys.tobytes(), rest))
    if torch is not None and hasattr(torch, "get_rng_state"):
        found["torch"] = digest(torch.get_rng_state())
        if torch.cuda.is_initialized():
            for device in range(torch.cuda.device_count()):
                found[f"cuda:{device}"] = digest(torch.cuda.get_rng_state(device))
    return found

"""Checkpoints whose files carry code that a careless reader would run, or that lack half of what they should hold.

The code makes the folder `marker`. Checksums do not stop who can also write a manifest, so what is planted here comes to the formats' own readers.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scenario import BY, open_strategy

from ckptbench.checkpointing.store import CheckpointStore
from ckptbench.common.errors import CheckpointError
from ckptbench.frameworks.contract import Arrays, Framework
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.registry import NATIVE, formats_of
from ckptbench.run.control.ranks import RankContext
from ckptbench.run.position import Position


class Payload:
    """Makes the folder `marker` when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._marker),)


class Method:
    """Becomes the method of a class when it is unpickled, by what an index may hold in place of its own members."""

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (Path, "mkdir")

    def __call__(self, *_: object) -> None: ...


class CallOfMethod:
    """Makes the folder `marker` when it is unpickled, and names nothing that an index does not hold."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Method(), (self._marker,)


@dataclass(frozen=True, slots=True)
class Malice:
    """One way to plant code in a file."""

    plant: Callable[[Path, Path], None]
    """(the file, the marker)."""
    careless: Callable[[Path], object]
    """A reader that runs what was planted: what a format's reader would be without its care."""


def outcomes(framework: Framework, world: RankContext, written: str, folder: Path) -> Arrays:
    """Of a format of the framework, or of the files of a strategy, which is behind BY; by `<file>/<kind>/`:

    what became of the `load`, whether it `ran` the code, whether the code is `live`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    store = CheckpointStore(folder / "checkpoints", keep=1)
    spec, format = NATIVE, written
    if written.startswith(BY):
        name = written.removeprefix(BY)
        spec, format = PluginSpec(name), formats_of("", name)[0]
    strategy = open_strategy(spec, framework, world, format=format, store=store)
    strategy.ready()
    strategy.save(Position(step=0, epoch=0, step_in_epoch=0))
    strategy.settle()
    version = store.newest()
    assert version is not None
    found: Arrays = {}
    for name in version.files:
        path, marker = version.folder / name, folder / "marker"
        original = path.read_bytes()
        for kind, malice in _ways(name).items():
            malice.plant(path, marker)
            found[f"{name}/{kind}/load"] = np.asarray(_error_of(lambda: strategy.load(version)))
            found[f"{name}/{kind}/ran"] = np.asarray(marker.exists())
            malice.careless(path)
            found[f"{name}/{kind}/live"] = np.asarray(marker.exists())
            shutil.rmtree(marker, ignore_errors=True)
            path.write_bytes(original)
    strategy.load(version)  # no file was refused for what it was before
    strategy.close()
    return found


HALVED = ("npz", "hdf5", "torch_save")
"""Formats whose files `load_half` can take the optimizer out of."""


def load_half(framework: Framework, format: str, folder: Path) -> str:
    """The error with which the load of a checkpoint without the optimizer's state ends, "" where it goes well."""
    chosen = framework.formats[format]
    path = folder / chosen.filename
    chosen.save(framework, path)
    _drop_optimizer(path)
    return _error_of(lambda: chosen.load(framework, path))


def _drop_optimizer(path: Path) -> None:
    match path.suffix:
        case ".npz":
            with np.load(path, allow_pickle=False) as archive:
                kept = [name for name in archive.files if not name.startswith("optimizer/")]
                np.savez(path, **{name: archive[name] for name in kept})
        case ".h5":
            import h5py

            with h5py.File(path, "r+") as file:
                del file["optimizer"]
        case ".pt":
            import torch

            state = torch.load(path, weights_only=True)
            state["optimizer"]["state"] = {}
            torch.save(state, path)


def load_gap(framework: Framework, world: RankContext, strategy: str, folder: Path) -> str:
    """The error with which the load of a version ends whose index knows only half of a tensor."""
    folder.mkdir(parents=True)
    store = CheckpointStore(folder / "checkpoints", keep=1)
    format = formats_of("", strategy)[0]
    saving = open_strategy(PluginSpec(strategy), framework, world, format=format, store=store)
    saving.ready()
    saving.save(Position(step=0, epoch=0, step_in_epoch=0))
    saving.settle()
    version = store.newest()
    assert version is not None
    GAPS[strategy](version.folder)
    error = _error_of(lambda: saving.load(version))
    saving.close()
    return error


def _halve_in_dcp(folder: Path) -> None:
    path = folder / DCP_INDEX
    index = pickle.loads(path.read_bytes())
    entry = next(each for each in index.state_dict_metadata.values() if len(each.size) > 1)
    (whole,) = entry.chunks
    rows, *others = whole.sizes
    entry.chunks[0] = dataclasses.replace(whole, sizes=type(whole.sizes)((rows // 2, *others)))
    path.write_bytes(pickle.dumps(index))


def _halve_in_torchsnapshot(folder: Path) -> None:
    path = folder / TORCHSNAPSHOT_INDEX
    index = json.loads(path.read_text())
    tensors = [name for name, entry in index["manifest"].items() if len(entry.get("shape", ())) > 1]
    entry = index["manifest"][tensors[0]]
    first, end = entry["byte_range"]
    half = {
        **entry,
        "shape": [entry["shape"][0] // 2, *entry["shape"][1:]],
        "byte_range": [first, (first + end) // 2],
    }
    chunk = {"offsets": [0] * len(half["shape"]), "sizes": half["shape"], "tensor": half}
    index["manifest"][tensors[0]] = {
        **{name: entry[name] for name in ("dtype", "shape", "replicated")},
        "type": "ChunkedTensor", "chunks": [chunk],
    }  # fmt: skip
    path.write_text(json.dumps(index))


def _halve_in_torch_checkpointing(folder: Path) -> None:
    """The rows that are left could be repeated to fill the tensor."""
    import torch

    path = folder / TORCH_CHECKPOINTING_MODEL
    state = torch.load(path, weights_only=True)
    name = next(name for name, tensor in state.items() if tensor.dim() > 1)
    torch.save({**state, name: state[name][:1].clone()}, path)


GAPS = {
    "dcp": _halve_in_dcp,
    "torchsnapshot": _halve_in_torchsnapshot,
    "torch_checkpointing": _halve_in_torch_checkpointing,
}
"""By strategy: what has a version, or its index, forget a part of a tensor."""


def _error_of(load: Callable[[], None]) -> str:
    """The words of the CheckpointError, or "" where it went well; any other error ends the scenario."""
    try:
        load()
    except CheckpointError as error:
        return str(error)
    return ""


def _ways(name: str) -> dict[str, Malice]:
    """By kind: a pickle in place of the file, and what its container can carry."""
    inside = {
        ".npz": {"object_array": Malice(_plant_object_array, _load_objects)},
        ".pt": {"torch_pickle": Malice(_plant_torch_pickle, _load_torch)},
        ".h5": {"opaque_dataset": Malice(_plant_opaque_dataset, _unpickle_dataset)},
        ".keras": {
            "lambda_layer": Malice(_plant_lambda_layer, _load_model),
            "object_weights": Malice(_plant_object_weights, _load_weight_objects),
        },
    }
    if name == DCP_INDEX:
        inside[""] = {
            "bytes_entry": Malice(_plant_bytes_entry, _load_dcp),
            "method": Malice(_plant_method, _unpickle),
        }
    if name == TORCHSNAPSHOT_INDEX:
        inside[""] = {"object_entry": Malice(_plant_object_entry, _restore_snapshot)}
    return {"pickle": Malice(_plant_pickle, _unpickle), **inside.get(Path(name).suffix, {})}


def _plant_pickle(path: Path, marker: Path) -> None:
    path.write_bytes(pickle.dumps(Payload(marker)))


def _plant_method(path: Path, marker: Path) -> None:
    path.write_bytes(pickle.dumps(CallOfMethod(marker)))


def _unpickle(path: Path) -> object:
    return pickle.loads(path.read_bytes())


def _plant_object_array(path: Path, marker: Path) -> None:
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    first = min(arrays)
    np.savez(path, **{**arrays, first: np.asarray([Payload(marker)], object)})


def _load_objects(path: Path | io.BytesIO) -> object:
    with np.load(path, allow_pickle=True) as archive:
        return [archive[name] for name in archive.files]


def _plant_torch_pickle(path: Path, marker: Path) -> None:
    (name,) = (name for name in zipfile.ZipFile(path).namelist() if name.endswith("/data.pkl"))
    _replace_in_zip(path, {name: pickle.dumps(Payload(marker), protocol=2)})


def _load_torch(path: Path) -> object:
    import torch

    return torch.load(path, weights_only=False)


DCP_INDEX, DCP_TENSORS = ".metadata", "__0_0.distcp"


def _plant_bytes_entry(path: Path, marker: Path) -> None:
    """The index of PyTorch's DCP can say that an entry is no tensor, but what `pickle.dumps` has written."""
    from torch.distributed.checkpoint.metadata import BytesStorageMetadata, MetadataIndex

    tensors = path.with_name(DCP_TENSORS)
    payload, offset = pickle.dumps(Payload(marker), protocol=2), tensors.stat().st_size
    with tensors.open("ab") as file:
        file.write(payload)
    index = pickle.loads(path.read_bytes())
    first = min(index.state_dict_metadata)
    (world,) = (where for what, where in index.storage_data.items() if what.fqn == first)
    index.state_dict_metadata[first] = BytesStorageMetadata()
    changes = {"relative_path": DCP_TENSORS, "offset": offset, "length": len(payload)}
    index.storage_data[MetadataIndex(first)] = dataclasses.replace(world, **changes)
    path.write_bytes(pickle.dumps(index))


def _load_dcp(path: Path) -> object:
    """Ends in an error, as what it reads there is no whole file of `torch.save`: after the code has run."""
    import torch.distributed.checkpoint as dcp

    first = min(pickle.loads(path.read_bytes()).state_dict_metadata)
    try:
        dcp.load({first: None}, checkpoint_id=path.parent, no_dist=True)
    except dcp.api.CheckpointException as error:
        return error
    return None


TORCHSNAPSHOT_INDEX = ".snapshot_metadata"
TORCH_CHECKPOINTING_MODEL = "model_0.pt"


def _plant_object_entry(path: Path, marker: Path) -> None:
    """The index of torchsnapshot can say that an entry is an object, in a file of its own that PyTorch unpickles."""
    (path.with_name("object")).write_bytes(pickle.dumps(Payload(marker), protocol=2))
    index = json.loads(path.read_text())
    first = min(name for name, entry in index["manifest"].items() if entry["type"] == "Tensor")
    index["manifest"][first] = {
        "type": "object", "location": "object", "serializer": "torch_save", "obj_type": "int",
        "replicated": False,
    }  # fmt: skip
    path.write_text(json.dumps(index))


def _restore_snapshot(path: Path) -> object:
    """With PyTorch as it was when the library was written: it unpickled everything."""
    import torch

    try:
        return torch.load(path.with_name("object"), weights_only=False)
    except RuntimeError as error:  # no whole file of `torch.save`
        return error


def _first_dataset(file: Any) -> str:
    import h5py

    names: list[str] = []
    file.visititems(
        lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None
    )
    return min(names)


def _plant_opaque_dataset(path: Path, marker: Path) -> None:
    import h5py

    with h5py.File(path, "r+") as file:
        name = _first_dataset(file)
        del file[name]
        file[name] = np.void(pickle.dumps(Payload(marker)))


def _unpickle_dataset(path: Path) -> object:
    import h5py

    with h5py.File(path, "r") as file:
        return pickle.loads(file[_first_dataset(file)][()].tobytes())


def _plant_lambda_layer(path: Path, marker: Path) -> None:
    """In the description of the model, which Keras can build a model from."""
    import keras

    mark = f"lambda x: (__import__('os').makedirs({str(marker)!r}, exist_ok=True), x)[1]"
    model = keras.Sequential([keras.Input((1,)), keras.layers.Lambda(eval(mark))])
    other = path.with_name("other.keras")
    model.save(other)
    shutil.rmtree(marker)  # the layer has run
    _replace_in_zip(path, {"config.json": zipfile.ZipFile(other).read("config.json")})
    other.unlink()


def _load_model(path: Path) -> object:
    """Ends in an error, as the arrays are another model's: after the layer has run."""
    import keras

    try:
        return keras.models.load_model(path, safe_mode=False, compile=False)
    except ValueError as error:
        return error


WEIGHTS, WEIGHTS_NPZ = "model.weights.h5", "model.weights.npz"


def _plant_object_weights(path: Path, marker: Path) -> None:
    """Keras also reads weights from an archive of NumPy's."""
    buffer = io.BytesIO()
    np.savez(buffer, weights=np.asarray([Payload(marker)], object))
    _replace_in_zip(path, {WEIGHTS_NPZ: buffer.getvalue()}, without=WEIGHTS)


def _load_weight_objects(path: Path) -> object:
    return _load_objects(io.BytesIO(zipfile.ZipFile(path).read(WEIGHTS_NPZ)))


def _replace_in_zip(path: Path, entries: dict[str, bytes], *, without: str = "") -> None:
    with zipfile.ZipFile(path) as archive:
        kept = {name: archive.read(name) for name in archive.namelist() if name != without}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**kept, **entries}.items():
            archive.writestr(name, content)

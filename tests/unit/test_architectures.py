"""The networks as data: their published sizes, and what follows from the description."""

from __future__ import annotations

import numpy as np
import pytest

from ckptbench.networks.layers import AveragePoolTo
from ckptbench.networks.models import ARCHITECTURES, resnet50, small_cnn, vgg16

IMAGENET, SMALL = (224, 224, 3), (32, 32, 3)


@pytest.mark.parametrize(
    ("network", "classes", "parameters"),
    [
        (resnet50, 10, 23_528_522),
        (vgg16, 10, 134_301_514),
        (resnet50, 1000, 25_557_032),
        (vgg16, 1000, 138_357_544),
    ],
)
def test_parameter_counts_are_the_published_ones(network, classes, parameters) -> None:  # type: ignore[no-untyped-def]
    assert network(SMALL, classes).parameter_count == parameters
    assert network(IMAGENET, classes).parameter_count == parameters


def test_resnet50_has_53_batch_norms_with_53120_statistics() -> None:
    network = resnet50(SMALL, 10)
    assert len(network.buffers()) == 2 * 53
    assert network.buffer_count == 53_120


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_names_are_unique_and_weights_have_the_described_shapes(name: str) -> None:
    network = ARCHITECTURES[name](SMALL, 10)
    weights = network.initial_weights(1) if name != "vgg16" else {}
    named = [layer.name for layer in network.flat() if hasattr(layer, "name")]
    assert len(named) == len(set(named))
    assert all(
        weights[key].shape == shape for key, shape in network.parameters().items() if weights
    )


def test_initial_weights_follow_the_seed_and_he() -> None:
    network = small_cnn(SMALL, 10)
    first, again, other = (network.initial_weights(seed) for seed in (1, 1, 2))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["fc.kernel"], other["fc.kernel"])
    wide = resnet50(SMALL, 10).initial_weights(1)["stage4.block0.conv2.kernel"]
    assert wide.std() == pytest.approx(np.sqrt(2 / (512 * 9)), rel=0.01)
    assert all(array.dtype == np.float32 for array in first.values())


def test_blocks_of_resnet_begin_as_the_identity() -> None:
    weights = resnet50(SMALL, 10).initial_weights(1)
    last = [name for name in weights if name.endswith("norm3.scale")]
    assert len(last) == 16
    assert not any(weights[name].any() for name in last)
    assert weights["stage1.block0.norm2.scale"].all()


def test_activations_are_counted_from_the_shapes() -> None:
    network = small_cnn(SMALL, 10)
    conv, pool, inside, shortcut = 8 * 16 * 16, 8 * 8 * 8, 16 * 8 * 8, 16 * 8 * 8
    residual = 2 * inside + shortcut + inside
    head = 16 * 4 + 16 * 4 + 3 * 32 + 10
    assert network.activation_count(SMALL) == 3 * conv + pool + residual + head


def test_windows_of_average_pooling_cover_all_rows_evenly_unevenly_and_repeated() -> None:
    assert AveragePoolTo(2).weights(4).tolist() == [[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]]
    assert AveragePoolTo(2).weights(3).tolist() == [[0.5, 0.5, 0], [0, 0.5, 0.5]]
    assert AveragePoolTo(3).weights(1).tolist() == [[1], [1], [1]]

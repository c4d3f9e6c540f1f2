"""The networks as data: their published sizes, and what follows from the description."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ckptbench.common.errors import DataError
from ckptbench.matrix.networks.layers import (
    AveragePoolTo,
    Branches,
    Conv,
    Dense,
    Dropout,
    Flatten,
    MaxPool,
    Network,
    ReLU,
)
from ckptbench.matrix.networks.models import (
    ALEXNET_PIXELS,
    ARCHITECTURES,
    NT3_ROWS,
    READ_TOKENS,
    alexnet,
    googlenet,
    network_of,
    nt3,
    resnet50,
    small_cnn,
    vgg16,
)

IMAGENET, SMALL = (224, 224, 3), (32, 32, 3)
EXPRESSIONS = (60_483, 1, 1)
FEW = 3e7
"""So many weights are drawn in a moment. Networks below have every kind of layer."""
"""One sample of CANDLE's NT3."""


@pytest.mark.parametrize(
    ("network", "classes", "parameters"),
    [
        (resnet50, 10, 23_528_522),
        (vgg16, 10, 134_301_514),
        (resnet50, 1000, 25_557_032),
        (vgg16, 1000, 138_357_544),
        (alexnet, 10, 57_044_810),
        (alexnet, 1000, 61_100_840),
        (googlenet, 10, 5_983_802),
        (googlenet, 1000, 6_998_552),
    ],
)
def test_parameter_counts_are_the_published_ones(network, classes, parameters) -> None:  # type: ignore[no-untyped-def]
    assert network(SMALL, classes).parameter_count == parameters
    assert network(IMAGENET, classes).parameter_count == parameters


def maps(network: Network, image: tuple[int, int, int]) -> list[tuple[int, ...]]:
    """Shapes of the outputs of a network's convolutions, modules and pools on its way, each once where they repeat."""
    shapes: list[tuple[int, ...]] = []
    for last, layer in enumerate(network.layers, start=1):
        if isinstance(layer, Conv | MaxPool | AveragePoolTo | Branches):
            shape = Network(network.layers[:last]).output_shape(image)
            shapes += [shape] if shape not in shapes[-1:] else []
    return shapes


def test_maps_of_alexnet_are_the_published_ones() -> None:
    network = alexnet(IMAGENET, 1000)
    assert maps(network, IMAGENET) == [
        (64, 55, 55), (64, 27, 27), (192, 27, 27), (192, 13, 13), (384, 13, 13), (256, 13, 13), (256, 6, 6),
    ]  # fmt: skip
    assert [layer.rate for layer in network.flat() if isinstance(layer, Dropout)] == [0.5, 0.5]


def test_maps_of_googlenet_are_the_published_ones() -> None:
    """Szegedy et al. 2015, table 1. All its pools with stride 2 must round up, as those of Caffe do."""
    shapes = [
        (64, 112, 112), (64, 56, 56), (192, 56, 56), (192, 28, 28), (256, 28, 28), (480, 28, 28), (480, 14, 14),
        (512, 14, 14), (528, 14, 14), (832, 14, 14), (832, 7, 7), (1024, 7, 7), (1024, 1, 1),
    ]  # fmt: skip
    assert maps(googlenet(IMAGENET, 1000), IMAGENET) == shapes
    rates = [each.rate for each in googlenet(IMAGENET, 9).flat() if isinstance(each, Dropout)]
    assert rates == [0.4]


@pytest.mark.parametrize("image", [(1, 1, 3), (7, 200, 3), SMALL, (75, 75, 3), (300, 260, 3)])
def test_googlenet_takes_images_of_any_size(image: tuple[int, int, int]) -> None:
    network = googlenet(image, 10)
    assert network.output_shape(image) == (10,)
    assert network.parameter_count == 5_983_802


def test_alexnet_refuses_an_image_that_its_first_convolution_does_not_fit() -> None:
    assert alexnet((ALEXNET_PIXELS, 9, 1), 2).output_shape((ALEXNET_PIXELS, 9, 1)) == (2,)
    with pytest.raises(
        DataError, match="alexnet needs images of 7 x 7 or more, and these have 9 x 6: use"
    ):
        alexnet((9, 6, 3), 2)


def test_nt3_is_that_of_candle() -> None:
    """Kernels, pools, layers and rates of nt3_default_model.txt. The counts follow from them."""
    network = nt3(EXPRESSIONS, 2)
    layers = list(network.flat())
    counts = {name: int(np.prod(shape)) for name, shape in network.parameters().items()}
    assert counts == {
        "conv1.kernel": 20 * 128, "conv1.bias": 128,
        "conv2.kernel": 10 * 128 * 128, "conv2.bias": 128,
        "fc1.kernel": 128 * 6045 * 200, "fc1.bias": 200,
        "fc2.kernel": 200 * 20, "fc2.bias": 20,
        "head.kernel": 20 * 2, "head.bias": 2,
    }  # fmt: skip
    assert network.parameter_count == 154_922_918
    assert network.buffer_count == 0
    convolutions = [layer for layer in layers if isinstance(layer, Conv)]
    assert [(layer.stride, layer.pad) for layer in convolutions] == [(1, 0), (1, 0)]
    assert [layer.kernel for layer in layers if isinstance(layer, MaxPool)] == [1, (10, 1)]
    assert [layer.rate for layer in layers if isinstance(layer, Dropout)] == [0.1, 0.1]


@pytest.mark.parametrize("image", [(NT3_ROWS, 1, 1), (59, 3, 2), (60_483, 1, 1)])
def test_nt3_takes_what_its_windows_leave_of_an_image(image: tuple[int, int, int]) -> None:
    network = nt3(image, 2)
    rows = ((image[0] - 28) // 10) * image[1]
    assert next(layer.inputs for layer in network.flat() if isinstance(layer, Dense)) == 128 * rows
    # Of one image: three outputs before the second convolution and two after it, then its pool and its flattened form.
    first, second = (image[0] - 19) * image[1], (image[0] - 28) * image[1]
    dense = 3 * 200 + 3 * 20 + 2
    assert network.activation_count(image) == 128 * (3 * first + 2 * second + 2 * rows) + dense


def test_the_largest_unfolded_input_is_that_of_the_second_convolution_of_nt3() -> None:
    assert nt3(EXPRESSIONS, 2).unfolded_count(EXPRESSIONS) == 128 * 10 * 60_455
    assert resnet50(SMALL, 10).unfolded_count(SMALL) == 3 * 49 * 16 * 16


def test_nt3_refuses_an_image_of_too_few_rows() -> None:
    with pytest.raises(DataError, match="nt3 needs images of 38 rows or more, and these have 37:"):
        nt3((NT3_ROWS - 1, 60, 1), 2)


def test_resnet50_has_53_batch_norms_with_53120_statistics() -> None:
    network = resnet50(SMALL, 10)
    assert len(network.buffers()) == 2 * 53
    assert network.buffer_count == 53_120


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_names_are_unique_and_weights_have_the_described_shapes(name: str) -> None:
    network = network_of(name, (16,) if name in READ_TOKENS else (64, 32, 3), 10)
    shapes = network.parameters()
    named = [layer.name for layer in network.flat() if hasattr(layer, "name")]
    assert len(named) == len(set(named))
    if sum(map(math.prod, shapes.values())) < FEW:
        weights = network.initial_weights(1)
        assert {key: weights[key].shape for key in shapes} == shapes


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


def branched(image: tuple[int, int, int]) -> Network:
    conv = [
        Conv(name=name, inputs=inputs, outputs=outputs, kernel=kernel, pad=kernel // 2, bias=True)
        for name, inputs, outputs, kernel in [("one", 3, 4, 1), ("two", 3, 2, 3)]
    ]
    branches = Branches(((conv[0],), (MaxPool(kernel=3, stride=1, pad=1), conv[1])))
    return Network((branches, MaxPool(kernel=2, stride=2, partial=True), ReLU(), Flatten()))


def test_layers_of_branches_are_layers_of_the_network() -> None:
    image = (5, 4, 3)
    network = branched(image)
    assert [layer.name for layer in network.flat() if isinstance(layer, Conv)] == [
        "one",
        "two",
    ]
    assert network.parameter_count == (3 * 4 + 4) + (3 * 9 * 2 + 2)
    pixels = 5 * 4
    inside, joined = (4 + 3 + 2) * pixels, 6 * pixels
    assert network.activation_count(image) == inside + joined + 3 * 6 * 3 * 2
    assert network.unfolded_count(image) == 3 * 9 * pixels
    assert network.output_shape(image) == (6 * 3 * 2,)


@pytest.mark.parametrize("pool", [{"kernel": 2, "stride": 3}, {"kernel": 3, "stride": 2, "pad": 1}])
def test_a_pool_with_partial_windows_has_neither_padding_nor_gaps(pool: dict[str, int]) -> None:
    """Frameworks differ in whether a window counts that lies in the padding, or behind the input, alone."""
    with pytest.raises(ValueError, match="partial windows"):
        MaxPool(**pool, partial=True)


def test_windows_of_average_pooling_cover_all_rows_evenly_unevenly_and_repeated() -> None:
    assert AveragePoolTo(2).weights(4).tolist() == [[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]]
    assert AveragePoolTo(2).weights(3).tolist() == [[0.5, 0.5, 0], [0, 0.5, 0.5]]
    assert AveragePoolTo(3).weights(1).tolist() == [[1], [1], [1]]


@pytest.mark.parametrize(
    ("model", "input", "giga"),
    [("resnet50", IMAGENET, 4.09), ("vgg16", IMAGENET, 15.47), ("alexnet", IMAGENET, 0.71)],
)
def test_multiplications_are_those_that_torchvision_publishes(
    model: str, input: tuple[int, ...], giga: float
) -> None:
    """The column GFLOPS of its table of classification weights."""
    assert round(network_of(model, input, 1000).multiplication_count(input) / 1e9, 2) == giga


def test_multiplications_of_a_transformer_are_those_of_kernels_head_and_attention() -> None:
    """GPT-2: 12 layers of 12 width² and attention of every place with every one, twice; and the head."""
    width, length, vocabulary = 768, 1024, 50_257
    layer = 12 * width**2 * length + 2 * length**2 * width
    counted = network_of("gpt2", (length,), vocabulary).multiplication_count((length,))
    assert counted == 12 * layer + vocabulary * width * length

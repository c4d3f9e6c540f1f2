"""The networks of tokens as data: their published sizes, and what follows from the description."""

from __future__ import annotations

import numpy as np
import pytest

from ckptbench.common.errors import DataError
from ckptbench.matrix.networks.layers import Attention, Dense, Residual, is_decayed
from ckptbench.matrix.networks.models import READ_TOKENS, network_of
from ckptbench.matrix.networks.transformers import gpt

SHAKESPEARE, BYTES = 65, 256


@pytest.mark.parametrize(
    ("model", "classes", "parameters"),
    [
        ("gpt2", 50_257, 124_439_808),
        ("gpt2", BYTES, 124_439_808),
        ("gpt2_medium", 50_257, 354_823_168),
        ("gpt_baby", SHAKESPEARE, 10_745_088),
        ("gpt_baby", BYTES, 10_818_432),
    ],
)
def test_parameter_counts_are_the_published_ones(model: str, classes: int, parameters: int) -> None:
    assert network_of(model, (256,), classes).parameter_count == parameters


def test_logits_are_those_of_every_place_over_the_vocabulary() -> None:
    assert network_of("gpt2", (16,), BYTES).output_shape((16,)) == (16, 50_257)


def test_a_tied_head_has_no_parameters() -> None:
    names = gpt(vocabulary=11, most=8, width=4, layers=1, heads=2).parameters()
    assert [name for name, shape in names.items() if 11 in shape] == ["tokens.kernel"]


def test_projections_onto_the_residual_begin_smaller() -> None:
    """By sqrt(2 * layers), as in GPT-2."""
    weights = network_of("gpt_baby", (16,), BYTES).initial_weights(1)
    assert weights["layer0.up.kernel"].std() == pytest.approx(0.02, rel=0.01)
    assert weights["tokens.kernel"].std() == pytest.approx(0.02, rel=0.01)
    assert weights["layer0.down.kernel"].std() == pytest.approx(0.02 / np.sqrt(12), rel=0.01)
    assert (weights["norm.scale"] == 1).all()


@pytest.mark.parametrize("model", sorted(READ_TOKENS))
def test_what_is_added_to_a_residual_passes_no_relu(model: str) -> None:
    blocks = [each for each in network_of(model, (16,), BYTES).layers if isinstance(each, Residual)]
    assert blocks
    assert not any(block.relu for block in blocks)


def test_norms_and_biases_are_not_decayed() -> None:
    parameters = network_of("gpt2", (16,), BYTES).parameters()
    decayed = {name for name in parameters if is_decayed(name)}
    assert {len(parameters[name]) for name in decayed} == {2}
    assert {len(parameters[name]) for name in parameters.keys() - decayed} == {1}


def test_activations_are_counted_from_the_shapes_and_scores() -> None:
    network = gpt(vocabulary=11, most=8, width=4, layers=1, heads=2)
    place = 4 + 4  # embedding, positions
    place += 4 + 12 + 4 + 4 + 4  # norm, queries to values, attention, projection, residual
    place += 4 + 16 + 16 + 4 + 4  # norm, up, GELU, down, residual
    place += 4 + 11
    assert network.activation_count((8,)) == 8 * place + 2 * 8 * 8


@pytest.mark.parametrize(
    ("model", "shape", "classes", "words"),
    [
        ("gpt2", (1025,), 9, "gpt2 takes at most 1,024 tokens, and these sequences have 1,025: lower datasets.text.length"),
        ("gpt2", (9,), 50_258, "gpt2 has a vocabulary of 50,257, and the dataset has 50,258 kinds"),
        ("gpt_baby", (8, 8, 3), 9, "gpt_baby learns from tokens, and this has images: use the dataset text"),
        ("resnet50", (8,), 9, "resnet50 learns from images, and this has tokens: use a dataset of images, or gpt_baby"),
    ],
)  # fmt: skip
def test_what_a_network_cannot_take_is_refused(
    model: str, shape: tuple[int, ...], classes: int, words: str
) -> None:
    with pytest.raises(DataError, match=words):
        network_of(model, shape, classes)


@pytest.mark.parametrize("model", sorted(READ_TOKENS))
def test_heads_share_the_width_evenly(model: str) -> None:
    layers = list(network_of(model, (16,), BYTES).flat())
    heads = {layer.heads for layer in layers if isinstance(layer, Attention)}
    widths = {
        layer.outputs // 3
        for layer in layers
        if isinstance(layer, Dense) and layer.name.endswith(".qkv")
    }
    assert len(heads) == len(widths) == 1
    assert widths.pop() % (2 * heads.pop()) == 0

"""The networks of tokens: GPT-2 and a small GPT, decoders with causal attention."""

from __future__ import annotations

from math import sqrt

from ckptbench.common.errors import DataError
from ckptbench.matrix.networks.layers import (
    Attention,
    Dense,
    Dropout,
    Embedding,
    Gelu,
    Layer,
    LayerNorm,
    Network,
    Positions,
    Residual,
    TiedHead,
)

DEVIATION = 0.02
"""Standard deviation of initial weights. In projections onto a residual it is divided by sqrt(2 * layers): GPT-2, section 2.3."""
EMBEDDING = "tokens"
GPT2_VOCABULARY = 50_257


def gpt2(tokens: tuple[int], classes: int) -> Network:
    """The smallest GPT-2 (Radford et al. 2019): 124,439,808 parameters, with the head tied to the embedding.

    It has 12 layers of width 768, a vocabulary of 50,257 for any dataset, and at most 1,024 tokens. No dropout, as in
    nanoGPT's pretraining.
    """
    _check("gpt2", tokens, classes, vocabulary=GPT2_VOCABULARY, most=1024)
    return gpt(vocabulary=GPT2_VOCABULARY, most=1024, width=768, layers=12, heads=12)


def gpt2_medium(tokens: tuple[int], classes: int) -> Network:
    """GPT-2 medium: like `gpt2`, with 24 layers of width 1,024; 354,823,168 parameters."""
    _check("gpt2_medium", tokens, classes, vocabulary=GPT2_VOCABULARY, most=1024)
    return gpt(vocabulary=GPT2_VOCABULARY, most=1024, width=1024, layers=24, heads=16)


def gpt_baby(tokens: tuple[int], classes: int) -> Network:
    """nanoGPT's small GPT for the characters of Shakespeare: 6 layers of width 384, no biases, dropout 0.2.

    The dataset determines the vocabulary: 10,745,088 parameters with nanoGPT's 65 characters, 10,818,432 with bytes.
    At most 256 tokens. Attention weights have no dropout.
    """
    _check("gpt_baby", tokens, classes, vocabulary=classes, most=256)
    return gpt(vocabulary=classes, most=256, width=384, layers=6, heads=6, bias=False, dropout=0.2)


def gpt(
    *,
    vocabulary: int,
    most: int,
    width: int,
    layers: int,
    heads: int,
    bias: bool = True,
    dropout: float = 0.0,
) -> Network:
    """A GPT for sequences of at most `most` tokens: norms come before attention and before the layers that are 4 wide."""
    dropped: tuple[Layer, ...] = (Dropout(dropout),) if dropout else ()
    stack: list[Layer] = [
        Embedding(name=EMBEDDING, vocabulary=vocabulary, width=width, deviation=DEVIATION),
        Positions(name="positions", most=most, width=width, deviation=DEVIATION),
        *dropped,
    ]
    for number in range(layers):
        name = f"layer{number}"
        stack += [
            _added(
                LayerNorm(name=f"{name}.norm1", width=width, bias=bias),
                _dense(f"{name}.qkv", width, 3 * width, bias=bias),
                Attention(heads=heads),
                _dense(f"{name}.attention_out", width, width, bias=bias, layers=layers),
                *dropped,
            ),
            _added(
                LayerNorm(name=f"{name}.norm2", width=width, bias=bias),
                _dense(f"{name}.up", width, 4 * width, bias=bias),
                Gelu(),
                _dense(f"{name}.down", 4 * width, width, bias=bias, layers=layers),
                *dropped,
            ),
        ]
    stack += [LayerNorm(name="norm", width=width, bias=bias), TiedHead(EMBEDDING)]
    return Network(tuple(stack))


def _added(*layers: Layer) -> Residual:
    """Layers whose output is added to their input."""
    return Residual(layers, relu=False)


def _dense(name: str, inputs: int, outputs: int, *, bias: bool, layers: int | None = None) -> Dense:
    """A dense layer. `layers`: it projects onto a residual, in a network with so many layers."""
    deviation = DEVIATION if layers is None else DEVIATION / sqrt(2 * layers)
    return Dense(name=name, inputs=inputs, outputs=outputs, bias=bias, deviation=deviation)


def _check(model: str, tokens: tuple[int], classes: int, *, vocabulary: int, most: int) -> None:
    """Raises DataError where the network cannot take sequences of this length, or tokens of so many kinds."""
    if tokens[0] > most:
        raise DataError(
            f"{model} takes at most {most:,} tokens, and these sequences have {tokens[0]:,}: lower datasets.text.length"
        )
    if classes > vocabulary:
        raise DataError(
            f"{model} has a vocabulary of {vocabulary:,}, and the dataset has {classes:,} kinds of tokens: use another model"
        )

"""Chainer with ChainerMN: synchronous data parallelism over MPI, with NCCL between GPUs.

Deterministic mode sets `cudnn_deterministic` and `use_ideep: never`, and disables `autotune` and
`cudnn_fast_batch_normalization`. With `warn_nondeterministic` the log names nondeterministic functions.
"""

from ckptbench.frameworks.chainer.framework import Chainer

__all__ = ["Chainer"]

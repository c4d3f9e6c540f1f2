"""Chainer with ChainerMN: synchronous data parallelism over MPI, NCCL between GPUs.

Deterministic mode sets `cudnn_deterministic` and `use_ideep: never`, turns `autotune` and `cudnn_fast_batch_normalization`
off, and sets `warn_nondeterministic`, so that the log names functions that are not deterministic.
"""

from ckptbench.frameworks.chainer.framework import Chainer

__all__ = ["Chainer"]

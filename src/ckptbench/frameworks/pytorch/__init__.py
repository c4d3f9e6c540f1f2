"""PyTorch with DistributedDataParallel: gloo on CPU, NCCL on GPUs.

Deterministic mode sets `torch.use_deterministic_algorithms(True)`, with which an operation without a deterministic
implementation raises an error; `cudnn.deterministic`; and `cudnn.benchmark` off. Average pooling uses matrix products,
because VGG-16's has no deterministic backward pass on a GPU. `find_unused_parameters` makes DistributedDataParallel
keep its buckets (undocumented, so a test with three ranks checks it).
"""

from ckptbench.frameworks.pytorch.framework import PyTorch

__all__ = ["PyTorch"]

"""PyTorch with DistributedDataParallel: gloo on CPU, NCCL on GPUs.

Deterministic mode is `torch.use_deterministic_algorithms(True)`, so that an operation without a deterministic form is an
error; `cudnn.deterministic`; `cudnn.benchmark` off; average pooling by matrix products, as that of VGG-16 has no
deterministic backward pass on a GPU; and `find_unused_parameters`, with which DistributedDataParallel keeps its buckets
(undocumented, so a test with three ranks checks it).
"""

from ckptbench.frameworks.pytorch.framework import PyTorch

__all__ = ["PyTorch"]

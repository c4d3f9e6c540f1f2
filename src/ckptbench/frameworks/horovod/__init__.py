"""Horovod over PyTorch and over TensorFlow."""

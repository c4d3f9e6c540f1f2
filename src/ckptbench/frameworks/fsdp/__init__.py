"""Frameworks whose ranks hold shards of model and optimizer: fully sharded data parallelism."""

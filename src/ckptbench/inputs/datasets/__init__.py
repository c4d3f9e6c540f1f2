"""Datasets, and the order in which the ranks read their samples."""

"""The resume proof inside a run: digests of its tensors, and ablations of it."""

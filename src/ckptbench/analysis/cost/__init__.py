"""What checkpoints and determinism cost: derived tables."""

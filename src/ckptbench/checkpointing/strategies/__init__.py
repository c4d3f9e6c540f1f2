"""Strategies: how ranks write checkpoints. Their contract, their measurement, and one file for each strategy."""

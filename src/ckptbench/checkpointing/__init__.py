"""Checkpoints: the manager that times and commits them, versions on disk and their checks, and the `strategies` that write them."""

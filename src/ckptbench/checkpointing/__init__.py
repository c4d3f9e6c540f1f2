"""Checkpoints: the manager that times and commits them, versions on disk and their checks, and in `strategies` how ranks write them."""

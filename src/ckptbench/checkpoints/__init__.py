"""Checkpoint versions on disk: their files, commit and checks, the same for every strategy."""

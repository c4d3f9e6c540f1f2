"""Errors, files, clocks and processes, used by all rooms."""

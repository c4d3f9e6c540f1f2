"""Errors, files, clocks and processes: what all rooms use of the machine."""

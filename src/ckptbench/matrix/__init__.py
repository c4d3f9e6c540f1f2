"""Cells (points of the matrix): fields, registries of their allowed names, ids; in `networks` each network."""

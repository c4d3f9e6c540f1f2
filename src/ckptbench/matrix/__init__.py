"""Cells, the points of the matrix: their fields, the registries of names that these take, their ids, and in `networks` each network."""

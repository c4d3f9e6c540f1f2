"""Cells, the points of the matrix: their fields, the names that the fields can take, and their ids."""

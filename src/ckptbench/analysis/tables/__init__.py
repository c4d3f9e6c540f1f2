"""What a table is, and where it lies on disk."""

"""The config: its fields, their validation, and the cells it expands into."""

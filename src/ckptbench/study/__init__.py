"""A study: its config, checked, the cells it expands into, and how far it is."""

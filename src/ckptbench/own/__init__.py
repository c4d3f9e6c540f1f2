"""A study of an own training: its config, its runs under the probe, and what comes of them."""

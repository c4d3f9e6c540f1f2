"""A study of a training of your own: its config, its runs under the probe, and what comes of them."""

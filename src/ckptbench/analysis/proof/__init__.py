"""Whether a restart gives the same training back: derived tables."""

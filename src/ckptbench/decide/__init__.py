"""How often to checkpoint, with what, and how to recover: from what was measured and how often machines fail."""

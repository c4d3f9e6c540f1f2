"""Answers as people read them: quantities with units, words for numbers, and the screen that says how often to checkpoint."""

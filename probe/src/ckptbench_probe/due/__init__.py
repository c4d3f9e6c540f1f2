"""Decides in the training itself when to save: `Interval`."""

"""Kills that disturb a run on purpose: their schedule and their execution."""

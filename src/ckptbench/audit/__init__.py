"""Checks of whether this machine's study can be trusted."""

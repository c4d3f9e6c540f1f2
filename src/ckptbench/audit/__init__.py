"""Checks of whether this machine's study can be trusted: each has a known answer, or passes only on an honest machine."""

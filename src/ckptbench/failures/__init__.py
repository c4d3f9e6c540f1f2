"""Injected failures of a run, and recoveries from them."""

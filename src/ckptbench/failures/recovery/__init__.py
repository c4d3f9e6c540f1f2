"""Recoveries: how training goes on after a failure. Their contract, and one file for each recovery."""

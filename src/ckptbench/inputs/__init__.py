"""Inputs made once, before any run: the frameworks' `environments` and the prepared `datasets`."""

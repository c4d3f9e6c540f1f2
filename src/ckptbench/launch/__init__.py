"""The launcher: starts the ranks of one run, monitors them, and seals the results."""

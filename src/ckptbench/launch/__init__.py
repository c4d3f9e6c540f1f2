"""The launcher: it starts the ranks of one run, watches them, and seals what they leave."""

"""Makes the environment of each framework from its lock file."""

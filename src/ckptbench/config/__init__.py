"""What people write in a config, checked, and the cells it expands into."""

"""What the log of a training says of its steps and saves: `read_training_log` in `reader`."""

"""What strikes a run, and how training goes on after it."""

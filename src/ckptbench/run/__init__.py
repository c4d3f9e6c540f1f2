"""What launcher, ranks and analysis share of a run: its plan, events, trace, seal and folder, and in `control` the messages between launcher and ranks."""

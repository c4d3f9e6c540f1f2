"""The parts of a run shared by launcher, ranks and analysis: plan, events, trace, seal and folder; in `control` the messages between launcher and ranks."""

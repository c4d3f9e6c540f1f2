"""The study of trainers: what each loses at a restart, a kill or a stop, and what its saves cost."""

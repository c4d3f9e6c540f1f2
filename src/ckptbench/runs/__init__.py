"""Run folders: their files, the writers of these files, and their readers."""

"""Run folders, read and checked, to the collected tables: one event a row."""

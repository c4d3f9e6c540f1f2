"""The machine: its files, clock, memory and page cache, and the facts about it for a manifest."""

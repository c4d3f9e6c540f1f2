"""From run folders to tables; nothing here imports a framework."""

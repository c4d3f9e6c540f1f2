"""From run folders to tables: `tables`, `collect`, `cost`, `proof`. Nothing here imports a framework."""

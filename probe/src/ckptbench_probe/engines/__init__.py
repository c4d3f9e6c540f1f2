"""One module an engine: it wraps what the engine's own module defines, once that has been imported."""

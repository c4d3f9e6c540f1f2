"""JAX with optax and Orbax."""

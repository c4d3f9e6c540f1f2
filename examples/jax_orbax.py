"""A JAX network that Orbax saves asynchronously. It resumes from the newest checkpoint.

python examples/jax_orbax.py --folder checkpoints
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
import orbax.checkpoint as ocp
from digest import digest

WIDTH = 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("checkpoints"))
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--save-every", type=int, default=10)
    options = parser.parse_args()
    key = jax.random.key(1)
    weights = {
        f"layer{n}": jax.random.normal(jax.random.fold_in(key, n), (WIDTH, WIDTH)) / WIDTH**0.5
        for n in range(3)
    }
    adam = optax.adam(1e-3)
    state: dict[str, Any] = {"weights": weights, "moments": adam.init(weights)}

    def loss(weights: dict[str, jax.Array], inputs: jax.Array) -> jax.Array:
        for weight in weights.values():
            inputs = jnp.tanh(inputs @ weight)
        return jnp.mean(inputs**2)

    @jax.jit
    def train(state: dict[str, Any], inputs: jax.Array) -> dict[str, Any]:
        updates, moments = adam.update(jax.grad(loss)(state["weights"], inputs), state["moments"])
        return {"weights": optax.apply_updates(state["weights"], updates), "moments": moments}

    every = ocp.CheckpointManagerOptions(save_interval_steps=options.save_every, max_to_keep=2)
    with ocp.CheckpointManager(options.folder.resolve(), options=every) as manager:
        done = manager.latest_step() or 0
        if done:
            state = manager.restore(done, args=ocp.args.StandardRestore(state))
        for step in range(done + 1, options.steps + 1):
            state = train(
                state, jax.random.normal(jax.random.fold_in(key, 1000 + step), (64, WIDTH))
            )
            jax.block_until_ready(state)
            started = time.perf_counter()
            if manager.save(step, args=ocp.args.StandardSave(state)):
                print(
                    f"step {step}: the save blocked {time.perf_counter() - started:.6f} s",
                    flush=True,
                )
        manager.wait_until_finished()
    print(f"weights {digest(state['weights'].values())}")


if __name__ == "__main__":
    main()

"""A JAX loop that Orbax's CheckpointManager saves and resumes, as https://orbax.readthedocs.io/en/latest/guides/checkpoint/orbax_checkpoint_101.html shows.

python train.py --folder checkpoints
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
import orbax.checkpoint as ocp

EPOCHS, UPDATES_OF_AN_EPOCH, BATCH, SAVE_EVERY = 3, 12, 16, 6
SAMPLES = UPDATES_OF_AN_EPOCH * BATCH


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    key = jax.random.key(1)
    inputs = jax.random.normal(jax.random.fold_in(key, 1), (SAMPLES, 64))
    targets = jax.random.randint(jax.random.fold_in(key, 2), (SAMPLES,), 0, 10)
    weights = {
        "first": jax.random.normal(jax.random.fold_in(key, 3), (64, 256)) / 8,
        "last": jax.random.normal(jax.random.fold_in(key, 4), (256, 10)) / 16,
    }
    adam = optax.adam(optax.cosine_decay_schedule(1e-3, EPOCHS * UPDATES_OF_AN_EPOCH))
    state: dict[str, Any] = {"weights": weights, "optimizer": adam.init(weights)}

    def loss(weights: dict[str, jax.Array], rows: jax.Array, key: jax.Array) -> jax.Array:
        hidden = jax.nn.relu(inputs[rows] @ weights["first"])
        hidden = jnp.where(jax.random.bernoulli(key, 0.9, hidden.shape), hidden / 0.9, 0)
        logits = hidden @ weights["last"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, targets[rows]).mean()

    @jax.jit
    def train(state: dict[str, Any], rows: jax.Array, key: jax.Array) -> dict[str, Any]:
        slopes = jax.grad(loss)(state["weights"], rows, key)
        updates, own = adam.update(slopes, state["optimizer"])
        return {"weights": optax.apply_updates(state["weights"], updates), "optimizer": own}

    every = ocp.CheckpointManagerOptions(save_interval_steps=SAVE_EVERY, max_to_keep=2)
    with ocp.CheckpointManager(options.folder.resolve(), options=every) as manager:
        done = manager.latest_step() or 0
        if done:
            state = manager.restore(done, args=ocp.args.StandardRestore(state))
        for step in range(done, EPOCHS * UPDATES_OF_AN_EPOCH):
            epoch, number = divmod(step, UPDATES_OF_AN_EPOCH)
            order = jax.random.permutation(jax.random.fold_in(key, 100 + epoch), SAMPLES)
            rows = order[number * BATCH : (number + 1) * BATCH]
            state = train(state, rows, jax.random.fold_in(key, 1000 + step))
            manager.save(step + 1, args=ocp.args.StandardSave(state))
        manager.wait_until_finished()


if __name__ == "__main__":
    main()

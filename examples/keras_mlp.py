"""A Keras network that saves every few batches and resumes from its newest save.

python examples/keras_mlp.py --folder checkpoints
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
from digest import digest


@keras.saving.register_keras_serializable()
class Timed(keras.Model):
    def save(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        started = time.perf_counter()
        super().save(filepath, *args, **kwargs)
        print(
            f"{Path(filepath).name}: the save took {time.perf_counter() - started:.6f} s",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("checkpoints"))
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--save-every", type=int, default=10)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(1)
    newest = options.folder / "newest.keras"
    model = keras.saving.load_model(newest) if newest.exists() else new_model()
    draw = np.random.default_rng(0)
    images, labels = (
        draw.random((32 * options.steps, 64), np.float32),
        draw.integers(10, size=32 * options.steps),
    )
    saves = keras.callbacks.ModelCheckpoint(str(newest), save_freq=options.save_every)
    done = 32 * int(model.optimizer.iterations)
    model.fit(
        images[done:], labels[done:], batch_size=32, shuffle=False, verbose=0, callbacks=[saves]
    )
    print(f"weights {digest(model.get_weights())}")


def new_model() -> Timed:
    inputs = keras.Input((64,))
    hidden = keras.layers.Dense(512, activation="relu")(inputs)
    outputs = keras.layers.Dense(10)(keras.layers.Dense(512, activation="relu")(hidden))
    model = Timed(inputs, outputs)
    model.compile(
        optimizer="adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    return model


if __name__ == "__main__":
    main()

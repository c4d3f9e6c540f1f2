"""A Keras network with ModelCheckpoint, resumed from its newest file as https://keras.io/guides/training_with_built_in_methods shows.

python train.py --folder checkpoints
"""

from __future__ import annotations

import argparse
from pathlib import Path

import keras
import numpy as np

EPOCHS, UPDATES_OF_AN_EPOCH, BATCH, SAVE_EVERY = 3, 12, 16, 6


def new_model() -> keras.Model:
    inputs = keras.Input((64,))
    hidden = keras.layers.Dropout(0.1)(keras.layers.Dense(256, activation="relu")(inputs))
    model = keras.Model(inputs, keras.layers.Dense(10)(hidden))
    model.compile(
        optimizer=keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(1e-3, EPOCHS * UPDATES_OF_AN_EPOCH)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )  # fmt: skip
    return model


def make_or_restore_model(folder: Path) -> keras.Model:
    saved = sorted(folder.glob("*.keras"), key=lambda path: path.stat().st_mtime)
    return keras.models.load_model(saved[-1]) if saved else new_model()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(1)
    draw = np.random.default_rng(0)
    inputs = draw.standard_normal((UPDATES_OF_AN_EPOCH * BATCH, 64), np.float32)
    targets = draw.integers(10, size=len(inputs))
    model = make_or_restore_model(options.folder)
    model.fit(
        inputs,
        targets,
        batch_size=BATCH,
        epochs=EPOCHS,
        initial_epoch=int(model.optimizer.iterations) // UPDATES_OF_AN_EPOCH,
        callbacks=[
            keras.callbacks.ModelCheckpoint(
                str(options.folder / "epoch-{epoch}.keras"), save_freq=SAVE_EVERY
            )
        ],
        verbose=0,
    )


if __name__ == "__main__":
    main()

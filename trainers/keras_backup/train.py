"""A Keras network that BackupAndRestore resumes, as https://keras.io/api/callbacks/backup_and_restore shows.

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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--double-checkpoint", action="store_true")
    options = parser.parse_args()
    keras.utils.set_random_seed(1)
    draw = np.random.default_rng(0)
    inputs = draw.standard_normal((UPDATES_OF_AN_EPOCH * BATCH, 64), np.float32)
    targets = draw.integers(10, size=len(inputs))
    backup = keras.callbacks.BackupAndRestore(
        backup_dir=str(options.folder),
        save_freq=SAVE_EVERY,
        double_checkpoint=options.double_checkpoint,
    )
    new_model().fit(inputs, targets, batch_size=BATCH, epochs=EPOCHS, callbacks=[backup], verbose=0)


if __name__ == "__main__":
    main()

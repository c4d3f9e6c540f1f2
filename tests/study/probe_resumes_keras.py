"""A small training of Keras that BackupAndRestore backs up and restores. Its dropout has a random state of its own.

python probe_resumes_keras.py FOLDER
"""

from __future__ import annotations

import sys

import keras
import numpy as np

BATCH, BATCHES, SAVE_EVERY = 8, 8, 3


def main() -> None:
    keras.utils.set_random_seed(1)
    inputs = keras.Input((8,))
    hidden = keras.layers.Dropout(0.5)(keras.layers.Dense(16, activation="relu")(inputs))
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    model.compile(optimizer="adam", loss="mse")
    draw = np.random.default_rng(0)
    count = BATCH * BATCHES
    backup = keras.callbacks.BackupAndRestore(
        sys.argv[1], save_freq=SAVE_EVERY, delete_checkpoint=False
    )
    model.fit(
        draw.random((count, 8), np.float32), draw.random((count, 1), np.float32),
        batch_size=BATCH, shuffle=False, verbose=0, callbacks=[backup],
    )  # fmt: skip


if __name__ == "__main__":
    main()

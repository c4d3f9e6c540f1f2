"""Trains with Keras, and saves three times in each way: in the foreground whole and weights alone, and whole in a thread beside the steps."""

from __future__ import annotations

import threading

import keras
import numpy as np

BATCHES, SAVE_EVERY = 30, 10


class Saves(keras.callbacks.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.threads: list[threading.Thread] = []

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        if (batch + 1) % SAVE_EVERY:
            return
        self.model.save(f"whole-{batch + 1}.keras")
        self.model.save_weights(f"weights-{batch + 1}.weights.h5")
        self.threads.append(
            threading.Thread(target=self.model.save, args=(f"thread-{batch + 1}.keras",))
        )
        self.threads[-1].start()


def main() -> None:
    keras.utils.set_random_seed(1)
    layers = [keras.Input((64,)), keras.layers.Dense(256, "relu"), keras.layers.Dense(10)]
    model = keras.Sequential(layers)
    model.compile(optimizer="adam", loss="mse")
    draw = np.random.default_rng(0)
    saves = Saves()
    inputs, outputs = draw.random((32 * BATCHES, 64)), draw.random((32 * BATCHES, 10))
    model.fit(inputs, outputs, batch_size=32, verbose=0, callbacks=[saves])
    for thread in saves.threads:
        thread.join()
    print(f"{sum(float(np.asarray(one).sum()) for one in model.get_weights()):.12f}")


if __name__ == "__main__":
    main()

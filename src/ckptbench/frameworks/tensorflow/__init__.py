"""TensorFlow with Keras 3.

TensorFlow and Keras read these settings when they are imported. Whoever imports a module of this folder has them made first.
"""

import os

os.environ.setdefault(
    "TF_CPP_MIN_LOG_LEVEL", "2"
)  # logs errors, and leaves out advice at the start
os.environ["KERAS_BACKEND"] = "tensorflow"

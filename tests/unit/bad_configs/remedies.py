"""A wrong config, and the remedies that several of them have."""

from __future__ import annotations

from typing import NamedTuple

from ckptbench.matrix import catalogue


class Bad(NamedTuple):
    text: str
    field: str
    value: str
    remedy: str


LIST_OF_FIELDS = "config/README.md lists them all"
QUOTED = "; a number has no quotes, and YAML reads 1e-3 and 1.0e6 as text, but 1.0e-3 and 1.0e+6 as numbers"
COUNT = "use a whole number from 1 to 1000000"
COUNT_FROM_ZERO = "use a whole number from 0 to 1000000"
SEED = "use a whole number from 0 to 2147483647"
NT3_REMEDY = (
    "download nt_train2.csv and nt_test2.csv from "
    "https://ftp.mcs.anl.gov/pub/candle/public/benchmarks/Pilot1/normal-tumor/ and give their folder"
)
EXTENT = "use a whole number from 1 to 65536"
SAMPLES = "use a whole number from 1 to 1000000000"
INTERVAL = 'use "never", a whole number of epochs from 1, or steps as in "50 steps"'
LONG_INTERVAL = "use an interval of at most 1000000000 epochs or steps"
FLAG = "use true or false"
PATH = 'use a path, as in "/scratch/me", or null'
MAPPING = "use a mapping of fields (config/README.md lists them), or remove the key"
ENTRIES = "use a list, each entry a mapping of fields of matrix"
ONE_VALUE = "give at least one value"
NO_TEXT = (
    "its key is no text (YAML reads yes, no, on, off and numbers as values): "
    "use a field of config/README.md"
)
FRAMEWORKS = (
    "use 'chainer', 'pytorch', 'tensorflow', 'horovod_pytorch', 'horovod_tensorflow' or 'all'"
)
FORMATS = (
    "use 'default', 'npz', 'npz_compressed', 'hdf5', 'hdf5_compressed', 'safetensors', 'torch_save', "
    "'dcp', 'torchsnapshot', 'keras', 'tf_checkpoint' or 'orbax'"
)
MODELS = "use 'resnet50', 'vgg16', 'alexnet', 'googlenet', 'googlenet_aux', 'nt3', 'small_cnn' or 'plain_cnn'"
STRATEGIES = f"use {', '.join(catalogue.STRATEGIES)}, or one of them with its options as in {{name: {{option: value}}}}"
ALIAS = "write the values instead of the alias"
KEEP_ONE = "keep one of the two"

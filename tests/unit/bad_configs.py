"""Wrong configs, as the text of one file, and what the error must say of each: field, value and remedy."""

from __future__ import annotations

from typing import NamedTuple


class Bad(NamedTuple):
    text: str
    field: str
    value: str
    remedy: str


LIST_OF_FIELDS = "config/README.md lists them all"
QUOTED = "; a number has no quotes, and YAML reads 1e-3 as text, but 1.0e-3 as a number"
COUNT = "use a whole number from 1 to 1000000"
COUNT_FROM_ZERO = "use a whole number from 0 to 1000000"
SEED = "use a whole number from 0 to 2147483647"
EXTENT = "use a whole number from 1 to 4096"
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
    "'keras' or 'tf_checkpoint'"
)
STRATEGIES = (
    "use native, sharded, async, or one of them with its options as in {name: {option: value}}"
)
ALIAS = "write the values instead of the alias"
KEEP_ONE = "keep one of the two"

THOUSAND = list(range(1, 1001))

NUMBERS = [
    ("matrix: {{ranks: {}}}", "matrix.ranks[0]", COUNT),
    ("matrix: {{batch_size: [8, {}]}}", "matrix.batch_size[1]", COUNT),
    ("matrix: {{epochs: {}}}", "matrix.epochs[0]", COUNT),
    ("repeats: {}", "repeats", "use a whole number from 1"),
    ("training: {{seed: {}}}", "training.seed", SEED),
    (
        "training: {{learning_rate: {}}}",
        "training.learning_rate",
        "use a number above 0, up to 1000000",
    ),
    ("training: {{momentum: {}}}", "training.momentum", "use a number from 0, below 1"),
    ("training: {{weight_decay: {}}}", "training.weight_decay", "use a number from 0 to 1000000"),
    ("training: {{steps_per_epoch: {}}}", "training.steps_per_epoch", f"{COUNT}, or null"),
    (
        "training: {{test_samples: {}}}",
        "training.test_samples",
        "use a whole number from 0 to 1000000000, or null",
    ),
    ("training: {{warmup_steps: {}}}", "training.warmup_steps", COUNT_FROM_ZERO),
    ("checkpoints: {{keep_during_run: {}}}", "checkpoints.keep_during_run", COUNT),
    ("checkpoints: {{keep_after_run: {}}}", "checkpoints.keep_after_run", COUNT_FROM_ZERO),
    ("datasets: {{synthetic: {{height: {}}}}}", "datasets.synthetic.height", EXTENT),
    ("datasets: {{synthetic: {{train_samples: {}}}}}", "datasets.synthetic.train_samples", SAMPLES),
    (
        "limits: {{run_minutes: {}}}",
        "limits.run_minutes",
        "use a number above 0, up to 1000000, or null",
    ),
]
"""Fields that want a number, with the place of the number in the file."""

NO_NUMBERS = [
    ("yes", "true", ""),
    ("no", "false", ""),
    ("true", "true", ""),
    ("-1", "-1", ""),
    (".nan", "nan", ""),
    (".inf", "inf", ""),
    ("two", "'two'", ""),
    ('"0.5"', "'0.5'", QUOTED),
    ("1e-3", "'1e-3'", QUOTED),
    ("2020-01-01", "datetime.date(2020, 1, 1)", ""),
]
"""What none of them takes: as the file has it, as the error shows it, and the remedy beside the usual one."""

BAD = [
    *(
        Bad(template.format(wrong), field, shown, remedy + more)
        for template, field, remedy in NUMBERS
        for wrong, shown, more in NO_NUMBERS
    ),
    # Numbers out of their bounds, and of the wrong kind.
    Bad("matrix: {ranks: 0}", "matrix.ranks[0]", "0", COUNT),
    Bad("matrix: {ranks: [1, 2.0]}", "matrix.ranks[1]", "2.0", COUNT),
    Bad("matrix: {ranks: [1, 1.5]}", "matrix.ranks[1]", "1.5", COUNT),
    Bad("matrix: {ranks: 1000001}", "matrix.ranks[0]", "1000001", COUNT),
    Bad("matrix: {ranks: null}", "matrix.ranks[0]", "null", COUNT),
    Bad("matrix: {ranks: {one: 1}}", "matrix.ranks[0]", "{'one': 1}", COUNT),
    Bad("matrix: {ranks: [[1, 2]]}", "matrix.ranks[0]", "[1, 2]", COUNT),
    Bad('matrix: {ranks: ["2"]}', "matrix.ranks[0]", "'2'", COUNT + QUOTED),
    Bad("matrix: {ranks: 1_0.5}", "matrix.ranks[0]", "10.5", COUNT),
    Bad("matrix: {ranks: !!python/tuple [1, 2]}", "matrix.ranks[0]", "(1, 2)", COUNT),
    Bad("matrix: {epochs: 10000000}", "matrix.epochs[0]", "10000000", COUNT),
    Bad(f"matrix: {{epochs: 1{'0' * 299}}}", "matrix.epochs[0]", f"1{'0' * 76}...", COUNT),
    Bad("repeats: 0", "repeats", "0", "use a whole number from 1"),
    Bad("repeats: 2.5", "repeats", "2.5", "use a whole number from 1"),
    Bad("repeats: null", "repeats", "null", "use a whole number from 1"),
    Bad("repeats: [3]", "repeats", "[3]", "use a whole number from 1"),
    Bad("training: {seed: 2147483648}", "training.seed", "2147483648", SEED),
    Bad("training: {seed: 1.0}", "training.seed", "1.0", SEED),
    Bad(
        "training: {learning_rate: 0}",
        "training.learning_rate",
        "0",
        "use a number above 0, up to 1000000",
    ),
    Bad(
        "training: {learning_rate: 1.0e+39}",
        "training.learning_rate",
        "1e+39",
        "use a number above 0, up to 1000000",
    ),
    Bad("training: {momentum: 1}", "training.momentum", "1", "use a number from 0, below 1"),
    Bad("training: {momentum: null}", "training.momentum", "null", "use a number from 0, below 1"),
    Bad(
        "training: {momentum: [0.9]}", "training.momentum", "[0.9]", "use a number from 0, below 1"
    ),
    Bad(
        "training: {steps_per_epoch: none}",
        "training.steps_per_epoch",
        "'none'",
        f"{COUNT}, or null",
    ),
    Bad("training: {steps_per_epoch: 0}", "training.steps_per_epoch", "0", f"{COUNT}, or null"),
    Bad(
        "training: {test_samples: all}",
        "training.test_samples",
        "'all'",
        "use a whole number from 0 to 1000000000, or null",
    ),
    Bad("training: {warmup_steps: null}", "training.warmup_steps", "null", COUNT_FROM_ZERO),
    Bad("checkpoints: {keep_during_run: 0}", "checkpoints.keep_during_run", "0", COUNT),
    Bad("datasets: {synthetic: {height: 5000}}", "datasets.synthetic.height", "5000", EXTENT),
    Bad("datasets: {synthetic: {width: 4097}}", "datasets.synthetic.width", "4097", EXTENT),
    Bad("datasets: {synthetic: {channels: 0}}", "datasets.synthetic.channels", "0", EXTENT),
    Bad(
        "datasets: {synthetic: {classes: 1}}",
        "datasets.synthetic.classes",
        "1",
        "use a whole number from 2 to 100000",
    ),
    Bad(
        "datasets: {synthetic: {classes: 100001}}",
        "datasets.synthetic.classes",
        "100001",
        "use a whole number from 2 to 100000",
    ),
    Bad(
        "datasets: {synthetic: {train_samples: 10000000000}}",
        "datasets.synthetic.train_samples",
        "10000000000",
        SAMPLES,
    ),
    Bad(
        "datasets: {synthetic: {test_samples: 0}}", "datasets.synthetic.test_samples", "0", SAMPLES
    ),
    Bad("datasets: {synthetic: {seed: 4294967296}}", "datasets.synthetic.seed", "4294967296", SEED),
    Bad(
        "datasets: {synthetic: {height: 4096, width: 4096, channels: 4096}}",
        "datasets.synthetic",
        "{'height': 4096, 'width': 4096, 'channels': 4096}",
        "an image of height x width x channels = 68719476736 bytes is too large: use at most 268435456",
    ),
    Bad(
        "limits: {run_minutes: 0}",
        "limits.run_minutes",
        "0",
        "use a number above 0, up to 1000000, or null",
    ),
    Bad(
        "limits: {run_minutes: 1.0e+300}",
        "limits.run_minutes",
        "1e+300",
        "use a number above 0, up to 1000000, or null",
    ),
    # Intervals.
    Bad("matrix: {interval: 0}", "matrix.interval[0]", "0", INTERVAL),
    Bad("matrix: {interval: [never, 1, -1]}", "matrix.interval[2]", "-1", INTERVAL),
    Bad("matrix: {interval: yes}", "matrix.interval[0]", "true", INTERVAL),
    Bad("matrix: {interval: 1.5}", "matrix.interval[0]", "1.5", INTERVAL),
    Bad('matrix: {interval: "1"}', "matrix.interval[0]", "'1'", INTERVAL),
    Bad("matrix: {interval: Never}", "matrix.interval[0]", "'Never'", INTERVAL),
    Bad("matrix: {interval: 0 steps}", "matrix.interval[0]", "'0 steps'", INTERVAL),
    Bad("matrix: {interval: -5 steps}", "matrix.interval[0]", "'-5 steps'", INTERVAL),
    Bad("matrix: {interval: 2 epochs}", "matrix.interval[0]", "'2 epochs'", INTERVAL),
    Bad("matrix: {interval: 50steps}", "matrix.interval[0]", "'50steps'", INTERVAL),
    Bad("matrix: {interval: 1.5 steps}", "matrix.interval[0]", "'1.5 steps'", INTERVAL),
    Bad("matrix: {interval: null}", "matrix.interval[0]", "null", INTERVAL),
    Bad("matrix: {interval: {steps: 5}}", "matrix.interval[0]", "{'steps': 5}", INTERVAL),
    Bad("matrix: {interval: 1000000001}", "matrix.interval[0]", "1000000001", LONG_INTERVAL),
    Bad(
        f"matrix: {{interval: {'9' * 300}}}", "matrix.interval[0]", f"{'9' * 77}...", LONG_INTERVAL
    ),
    Bad(
        f"matrix: {{interval: {'9' * 300} steps}}",
        "matrix.interval[0]",
        f"'{'9' * 76}...",
        LONG_INTERVAL,
    ),
    Bad(
        f"matrix: {{interval: {'9' * 5000} steps}}",
        "matrix.interval[0]",
        f"'{'9' * 76}...",
        LONG_INTERVAL,
    ),
    # Names.
    Bad("accelerator: tpu", "accelerator", "'tpu'", "use 'cpu' or 'cuda'"),
    Bad("accelerator: [cpu]", "accelerator", "['cpu']", "use 'cpu' or 'cuda'"),
    Bad("accelerator: null", "accelerator", "null", "use 'cpu' or 'cuda'"),
    Bad("accelerator: CPU", "accelerator", "'CPU'", "use 'cpu' or 'cuda'"),
    Bad("matrix: {framework: torch}", "matrix.framework[0]", "'torch'", FRAMEWORKS),
    Bad("matrix: {framework: [pytorch, no]}", "matrix.framework[1]", "false", FRAMEWORKS),
    Bad("matrix: {framework: [[pytorch]]}", "matrix.framework[0]", "['pytorch']", FRAMEWORKS),
    Bad("matrix: {framework: {pytorch: 1}}", "matrix.framework[0]", "{'pytorch': 1}", FRAMEWORKS),
    Bad(
        "matrix: {model: resnet}",
        "matrix.model[0]",
        "'resnet'",
        "use 'resnet50', 'vgg16', 'small_cnn' or 'plain_cnn'",
    ),
    Bad(
        "matrix: {model: 50}",
        "matrix.model[0]",
        "50",
        "use 'resnet50', 'vgg16', 'small_cnn' or 'plain_cnn'",
    ),
    Bad(
        "matrix: {dataset: imagenet}",
        "matrix.dataset[0]",
        "'imagenet'",
        "use 'digits', 'cifar10' or 'synthetic'",
    ),
    Bad("matrix: {format: pickle}", "matrix.format[0]", "'pickle'", FORMATS),
    Bad("matrix: {format: none}", "matrix.format[0]", "'none'", FORMATS),
    Bad("matrix: {strategy: deepfrozen}", "matrix.strategy[0]", "'deepfrozen'", STRATEGIES),
    Bad("matrix: {strategy: [native, 7]}", "matrix.strategy[1]", "7", STRATEGIES),
    Bad(
        "matrix: {strategy: [{native: {}, sharded: {}}]}",
        "matrix.strategy[0]",
        "{'native': {}, 'sharded': {}}",
        STRATEGIES,
    ),
    Bad("matrix: {strategy: {sharded: 3}}", "matrix.strategy[0]", "{'sharded': 3}", STRATEGIES),
    Bad(
        "matrix: {strategy: {sharded: {levels: memory}}}",
        "matrix.strategy[0]",
        "{'sharded': {'levels': 'memory'}}",
        "strategy sharded has no option 'levels': it takes none",
    ),
    Bad(
        "matrix: {framework: pytorch, strategy: sharded, format: torch_save}",
        "matrix.format[0]",
        "'torch_save'",
        "none of the frameworks pytorch writes it with the strategies sharded: use safetensors",
    ),
    Bad(
        "matrix: {history: killed}",
        "matrix.history[0]",
        "'killed'",
        "use 'whole', 'again', 'killed_between', 'killed_inside' or 'killed_thrice'",
    ),
    Bad(
        "matrix: {omit: null}",
        "matrix.omit[0]",
        "null",
        "use 'nothing', 'position', 'momentum', 'random', 'dropout', 'statistics' or 'first_update'",
    ),
    Bad("matrix: {cache: hot}", "matrix.cache[0]", "'hot'", "use 'warm' or 'cold'"),
    # True or false.
    Bad("resume: 1", "resume", "1", FLAG),
    Bad('resume: "yes"', "resume", "'yes'", FLAG),
    Bad("resume: null", "resume", "null", FLAG),
    Bad("training: {proof: 0}", "training.proof", "0", FLAG),
    Bad('training: {proof: "true"}', "training.proof", "'true'", FLAG),
    Bad("matrix: {deterministic: [true, 1]}", "matrix.deterministic[1]", "1", FLAG),
    Bad("matrix: {deterministic: maybe}", "matrix.deterministic[0]", "'maybe'", FLAG),
    # Empty lists.
    Bad("matrix: {ranks: []}", "matrix.ranks", "[]", ONE_VALUE),
    Bad("matrix: {framework: []}", "matrix.framework", "[]", ONE_VALUE),
    Bad("matrix: {interval: []}", "matrix.interval", "[]", ONE_VALUE),
    Bad("include: [{ranks: []}]", "include[0].ranks", "[]", ONE_VALUE),
    # Sections.
    Bad("matrix:", "matrix", "null", MAPPING),
    Bad("matrix: [framework, pytorch]", "matrix", "['framework', 'pytorch']", MAPPING),
    Bad("matrix: pytorch", "matrix", "'pytorch'", MAPPING),
    Bad("training: null", "training", "null", MAPPING),
    Bad("training: 3", "training", "3", MAPPING),
    Bad("checkpoints: /scratch", "checkpoints", "'/scratch'", MAPPING),
    Bad("datasets: []", "datasets", "[]", MAPPING),
    Bad("datasets: {synthetic: 64}", "datasets.synthetic", "64", MAPPING),
    Bad("datasets: {cifar10: a.tar.gz}", "datasets.cifar10", "'a.tar.gz'", MAPPING),
    Bad("limits: 5", "limits", "5", MAPPING),
    Bad("exclude: {ranks: 2}", "exclude", "{'ranks': 2}", ENTRIES),
    Bad("exclude: null", "exclude", "null", ENTRIES),
    Bad("include: pytorch", "include", "'pytorch'", ENTRIES),
    Bad("exclude: [pytorch]", "exclude[0]", "'pytorch'", MAPPING),
    Bad("include: [null]", "include[0]", "null", MAPPING),
    Bad("include: [{ranks: 0}]", "include[0].ranks[0]", "0", COUNT),
    Bad("exclude: [{interval: 0}]", "exclude[0].interval[0]", "0", INTERVAL),
    # Keys.
    Bad(
        "matrix: {rank: 2}",
        "matrix.rank",
        "2",
        f"there is no such field: did you mean ranks?; {LIST_OF_FIELDS}",
    ),
    Bad(
        "ranks: 2",
        "ranks",
        "2",
        f"there is no such field: did you mean matrix.ranks?; {LIST_OF_FIELDS}",
    ),
    Bad(
        "matrix: {repeats: 2}",
        "matrix.repeats",
        "2",
        f"there is no such field: did you mean repeats?; {LIST_OF_FIELDS}",
    ),
    Bad(
        "trainning: {seed: 2}",
        "trainning",
        "{'seed': 2}",
        f"there is no such field: did you mean training?; {LIST_OF_FIELDS}",
    ),
    Bad("colour: red", "colour", "'red'", f"there is no such field; {LIST_OF_FIELDS}"),
    Bad(
        "exclude: [{accelerator: cpu}]",
        "exclude[0].accelerator",
        "'cpu'",
        f"there is no such field: did you mean accelerator?; {LIST_OF_FIELDS}",
    ),
    Bad('"a\\nb": 1', "'a\\nb'", "1", f"there is no such field; {LIST_OF_FIELDS}"),
    Bad("yes: 1", "true", "1", NO_TEXT),
    Bad("matrix: {on: 1}", "matrix.true", "1", NO_TEXT),
    Bad("matrix: {off: 1}", "matrix.false", "1", NO_TEXT),
    Bad("matrix: {null: 1}", "matrix.null", "1", NO_TEXT),
    Bad("matrix: {~: [1]}", "matrix.null", "[1]", NO_TEXT),
    Bad("training: {1.5: 1}", "training.1.5", "1", NO_TEXT),
    Bad("datasets: {.nan: 1}", "datasets.nan", "1", NO_TEXT),
    Bad("matrix: {7: 1}", "matrix[7]", "1", NO_TEXT),
    Bad("2020-01-01: 1", "datetime.date(2020, 1, 1)", "1", NO_TEXT),
    Bad("exclude: [{true: 1}]", "exclude[0].true", "1", NO_TEXT),
    # Keys that are set twice, which the merged config no longer shows.
    Bad(
        "repeats: 3\nresume: true\nrepeats: 4",
        "repeats",
        "3 (line 1) and then 4 (line 3)",
        KEEP_ONE,
    ),
    Bad(
        "matrix:\n  ranks: 1\n  epochs: 2\n  ranks: [2,\n    4]",
        "matrix.ranks",
        "1 (line 2) and then [2, 4] (line 4)",
        KEEP_ONE,
    ),
    Bad(
        "matrix: {ranks: 1}\ntraining: {seed: 1}\nmatrix: {epochs: 1}",
        "matrix",
        "{ranks: 1} (line 1) and then {epochs: 1} (line 3)",
        KEEP_ONE,
    ),
    Bad('repeats: 3\n"repeats": 3', "repeats", "3 (line 1) and then 3 (line 2)", KEEP_ONE),
    Bad(
        "exclude:\n  - {ranks: 1, ranks: 2}",
        "exclude[0].ranks",
        "1 (line 2) and then 2 (line 2)",
        KEEP_ONE,
    ),
    Bad(
        "training:\ntraining:\n  seed: 1",
        "training",
        "null (line 1) and then seed: 1 (line 3)",
        KEEP_ONE,
    ),
    Bad('{"repeats": 3, "repeats": 4}', "repeats", "3 and then 4", KEEP_ONE),
    Bad(
        '{"exclude": [{"ranks": 1, "ranks": [2]}]}', "exclude[0].ranks", "1 and then [2]", KEEP_ONE
    ),
    Bad(
        "include:\n  - &one {ranks: 1, ranks: 2}\n  - *one",
        "include[0].ranks",
        "1 (line 2) and then 2 (line 2)",
        KEEP_ONE,
    ),
    # Values that hold themselves, or that are far too many.
    Bad("matrix: {ranks: &r [1, *r]}", "matrix.ranks[1]", "an alias of what it lies in", ALIAS),
    Bad("exclude: &e [*e]", "exclude[0]", "an alias of what it lies in", ALIAS),
    Bad(
        f"matrix: {{ranks: {'[' * 40}1{']' * 40}}}",
        "matrix.ranks" + "[0]" * 10,
        "nested",
        "a config has at most 12 levels: use fewer",
    ),
    Bad(
        "\n".join(
            ["a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
            + [
                f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]"
                for old, new in zip("abcdef", "bcdefg", strict=True)
            ]
        ),
        "e",
        "one of too many values",
        "use at most 100000 in all",
    ),
    Bad(
        f"repeats: 0x{'f' * 4000}",
        "repeats",
        f"0x{'f' * 75}...",
        "use a number of fewer than 1000 digits",
    ),
    # Paths.
    Bad("checkpoints: {folder: ''}", "checkpoints.folder", "''", PATH),
    Bad("checkpoints: {folder: 3}", "checkpoints.folder", "3", PATH),
    Bad("checkpoints: {folder: yes}", "checkpoints.folder", "true", PATH),
    Bad("checkpoints: {folder: [/a, /b]}", "checkpoints.folder", "['/a', '/b']", PATH),
    Bad(
        'checkpoints: {folder: "/scratch/a\\0b"}',
        "checkpoints.folder",
        "'/scratch/a\\x00b'",
        "a path holds no NUL character: remove it",
    ),
    Bad(
        'checkpoints: {folder: "\\ud800"}',
        "checkpoints.folder",
        "'\\ud800'",
        "no path can hold these characters: remove them",
    ),
    Bad(
        "checkpoints: {folder: ~no_such_user_here/ck}",
        "checkpoints.folder",
        "'~no_such_user_here/ck'",
        "no user of this name has a home folder here: write the path in full",
    ),
    Bad(
        f"checkpoints: {{folder: /scratch/{'a' * 256}}}",
        "checkpoints.folder",
        f"'/scratch/{'a' * 67}...",
        "use a path of at most 3000 bytes, and 255 for each name in it",
    ),
    Bad(
        f"checkpoints: {{folder: {'/scratch' * 400}}}",
        "checkpoints.folder",
        f"'{('/scratch' * 10)[:76]}...",
        "use a path of at most 3000 bytes, and 255 for each name in it",
    ),
    Bad("datasets: {cifar10: {archive: ''}}", "datasets.cifar10.archive", "''", PATH),
    Bad("datasets: {cifar10: {archive: no}}", "datasets.cifar10.archive", "false", PATH),
    Bad(
        'datasets: {cifar10: {archive: "/data/\\0"}}',
        "datasets.cifar10.archive",
        "'/data/\\x00'",
        "a path holds no NUL character: remove it",
    ),
    Bad(
        "matrix: {dataset: cifar10}\ndatasets: {cifar10: {archive: /no/such/archive.tar.gz}}",
        "datasets.cifar10.archive",
        "'/no/such/archive.tar.gz'",
        "there is no such file: give the path of the official cifar-10-python.tar.gz, or null to download it",
    ),
    Bad(
        "include: [{dataset: cifar10}]\ndatasets: {cifar10: {archive: /}}",
        "datasets.cifar10.archive",
        "'/'",
        "there is no such file: give the path of the official cifar-10-python.tar.gz, or null to download it",
    ),
    # Values that do not go together.
    Bad(
        "checkpoints: {keep_after_run: 3}",
        "checkpoints.keep_after_run",
        "3",
        "no more are there than keep_during_run, which is 2: lower the one or raise the other",
    ),
    Bad(
        "checkpoints: {keep_during_run: 4, keep_after_run: 5}",
        "checkpoints.keep_after_run",
        "5",
        "no more are there than keep_during_run, which is 4: lower the one or raise the other",
    ),
    Bad(
        "matrix: {framework: pytorch, epochs: 2}\ntraining: {steps_per_epoch: 5, warmup_steps: 10}",
        "training.warmup_steps",
        "10",
        "the run pytorch-resnet50-digits-r1-b32-n2-never-rep0 has 10 steps in all, and none is left to time: "
        "lower it, or train longer",
    ),
    Bad(
        "matrix: {framework: pytorch, batch_size: 1000, interval: never, ranks: 1, epochs: 3}\n"
        "training: {warmup_steps: 3}",
        "training.warmup_steps",
        "3",
        "the run pytorch-resnet50-digits-r1-b1000-n3-never-rep0 has 3 steps in all, and none is left to time: "
        "lower it, or train longer",
    ),
    Bad(
        "exclude: [{ranks: 64}]",
        "exclude[0]",
        "{'ranks': 64}",
        "no cell matches it: correct or remove it",
    ),
    Bad(
        "exclude: [{framework: all}]",
        "exclude",
        "[{'framework': 'all'}]",
        "the matrix is empty: exclude leaves no cell; drop less",
    ),
    Bad(
        "exclude: [{}]",
        "exclude",
        "[{}]",
        "the matrix is empty: exclude leaves no cell; drop less",
    ),
    Bad(
        "matrix: {framework: pytorch, format: [hdf5, npz]}",
        "matrix.format[1]",
        "'npz'",
        "none of the frameworks pytorch writes it: use torch_save, safetensors, hdf5",
    ),
    Bad(
        "include: [{framework: tensorflow, format: npz, interval: 1}]",
        "include[0]",
        "{'framework': 'tensorflow', 'format': 'npz', 'interval': 1}",
        "tensorflow does not write npz: use hdf5, keras, tf_checkpoint",
    ),
    Bad(
        "matrix: {interval: never}\ninclude: [{format: hdf5}]",
        "include[0]",
        "{'format': 'hdf5'}",
        "it names a format and no interval to write it at: add one, as in interval: 1",
    ),
    Bad(
        "matrix: {interval: 1, history: again}\ntraining: {proof: false}",
        "training.proof",
        "false",
        "runs with a history are there to be compared, so set it to true",
    ),
    Bad(
        "matrix: {interval: 1, cache: [warm, cold]}",
        "matrix.cache[1]",
        "'cold'",
        "no cell of the matrix can have it: omit and cache need a history with restarts, and whole has none: "
        "use killed_between, killed_inside, killed_thrice",
    ),
    # Too many cells.
    Bad(
        "matrix: {framework: pytorch}\nrepeats: 1000000000",
        "repeats",
        "1000000000",
        "the study has 4,000,000,000 cells (4 a repeat), and at most 10,000 are allowed: use fewer repeats",
    ),
    Bad(
        f"matrix: {{framework: pytorch, interval: never}}\nrepeats: 1{'0' * 100}",
        "repeats",
        f"1{'0' * 76}...",
        f"the study has {2 * 10**100:,} cells (2 a repeat), and at most 10,000 are allowed: use fewer repeats",
    ),
    Bad(
        f"matrix: {{framework: pytorch, ranks: {THOUSAND}, batch_size: {THOUSAND}, interval: 1}}",
        "matrix",
        f"{{'framework': 'pytorch', 'ranks': {THOUSAND}"[:77] + "...",
        "its lists give 1,000,000 combinations (ranks 1000 x batch_size 1000): at most 100,000 are allowed "
        "in all; shorten the lists",
    ),
    Bad(
        f"matrix: {{framework: pytorch, ranks: 1}}\ninclude: [{{epochs: {THOUSAND}, ranks: {THOUSAND}}}]",
        "include[0]",
        f"{{'epochs': {THOUSAND}"[:77] + "...",
        "its lists give 1,000,000 combinations (ranks 1000 x epochs 1000): at most 100,000 are allowed "
        "in all; shorten the lists",
    ),
    Bad(
        f"matrix: {{framework: pytorch, dataset: synthetic, batch_size: 1, ranks: {THOUSAND}, "
        "epochs: [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13], interval: never}",
        "matrix",
        f"{{'framework': 'pytorch', 'dataset': 'synthetic', 'batch_size': 1, 'ranks': {THOUSAND}"[
            :77
        ]
        + "...",
        "the study has 33,000 cells (11,000 a repeat), and at most 10,000 are allowed: shorten its lists",
    ),
]

UNREADABLE = [
    (
        "matrix:\n\tranks: 1",
        "line 2, column 1: not YAML: while scanning for the next token, found character '\\t' that cannot start any token",
    ),
    (
        "matrix: {ranks: 1",
        "line 1, column 18: not YAML: while parsing a flow mapping, expected ',' or '}', but got '<stream end>'",
    ),
    ("repeats: 3\n  seed: 1", "line 2, column 7: not YAML: mapping values are not allowed here"),
    (
        "matrix: [1, 2",
        "line 1, column 14: not YAML: while parsing a flow sequence, expected ',' or ']', but got '<stream end>'",
    ),
    (
        'folder: "a',
        "line 1, column 11: not YAML: while scanning a quoted scalar, found unexpected end of stream",
    ),
    ("ranks: *none", "line 1, column 8: not YAML: found undefined alias 'none'"),
    (
        "--- {}\n--- {}",
        "line 2, column 1: not YAML: expected a single document in the stream, but found another document",
    ),
    (
        "a: !mine 1",
        "line 1, column 4: not YAML: could not determine a constructor for the tag '!mine'",
    ),
    (
        "? [1]\n: 2",
        "line 1, column 3: not YAML: while constructing a mapping, found unhashable key",
    ),
    ("a: \x01", "cannot be read as YAML: unacceptable character #x0001"),
    ("a: 2020-13-45", "cannot be read as YAML: month must be in 1..12"),
    ("", "the file is empty or no mapping: give it fields"),
    ("# nothing", "the file is empty or no mapping: give it fields"),
    ("- repeats: 3", "the file is empty or no mapping: give it fields"),
    ("repeats", "the file is empty or no mapping: give it fields"),
    ("[1, 2]", "the file is empty or no mapping: give it fields"),
    ("a: " + "[" * 3000, "a value holds itself or is nested too deeply"),
    ("matrix: &m {ranks: *m}", "matrix.ranks is an alias of what it lies in"),
]
"""Files that Snakemake does not read, and how the line of `python -m ckptbench.study.sources` goes on."""

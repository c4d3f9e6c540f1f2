"""Sections and keys that are wrong, keys that are set twice, and values without an end."""

from __future__ import annotations

from bad_configs.remedies import (
    ALIAS,
    COUNT,
    ENTRIES,
    INTERVAL,
    KEEP_ONE,
    LIST_OF_FIELDS,
    MAPPING,
    NO_TEXT,
    Bad,
)

STRUCTURE = [
    # Sections.
    Bad("matrix:", "matrix", "null", MAPPING),
    Bad("matrix: [framework, pytorch]", "matrix", "['framework', 'pytorch']", MAPPING),
    Bad("matrix: pytorch", "matrix", "'pytorch'", MAPPING),
    Bad("training: null", "training", "null", MAPPING),
    Bad("training: 3", "training", "3", MAPPING),
    Bad("checkpoints: /scratch", "checkpoints", "'/scratch'", MAPPING),
    Bad("datasets: []", "datasets", "[]", MAPPING),
    Bad("datasets: {synthetic: 64}", "datasets.synthetic", "64", MAPPING),
    Bad("datasets: {nt3: /data}", "datasets.nt3", "'/data'", MAPPING),
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
        f"there is no such field; did you mean ranks? {LIST_OF_FIELDS}",
    ),
    Bad(
        "ranks: 2",
        "ranks",
        "2",
        f"there is no such field; did you mean matrix.ranks? {LIST_OF_FIELDS}",
    ),
    Bad(
        "matrix: {repeats: 2}",
        "matrix.repeats",
        "2",
        f"there is no such field; did you mean repeats? {LIST_OF_FIELDS}",
    ),
    Bad(
        "trainning: {seed: 2}",
        "trainning",
        "{'seed': 2}",
        f"there is no such field; did you mean training? {LIST_OF_FIELDS}",
    ),
    Bad("colour: red", "colour", "'red'", f"there is no such field; {LIST_OF_FIELDS}"),
    Bad(
        "exclude: [{accelerator: cpu}]",
        "exclude[0].accelerator",
        "'cpu'",
        f"there is no such field; did you mean accelerator? {LIST_OF_FIELDS}",
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
]

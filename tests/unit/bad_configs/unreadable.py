"""Files that are no config: what Snakemake itself cannot read."""

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
"""Files that Snakemake does not read, and how the line of `python -m ckptbench.settings.sources` goes on."""

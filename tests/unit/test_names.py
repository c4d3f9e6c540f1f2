"""Names of cells and the values in them: one name for each value, one value for each name, by properties over all registries."""

from __future__ import annotations

import itertools
import json
import math
import random
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from ckptbench.checkpointing.levels import open_levels
from ckptbench.common.errors import ConfigError
from ckptbench.config.expansion import expand
from ckptbench.config.study import load_config
from ckptbench.inputs.datasets.sources import DATASETS
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.interval import Interval
from ckptbench.matrix.networks.models import ARCHITECTURES
from ckptbench.matrix.plugin_spec import (
    LARGEST_OPTION,
    NAME,
    Entry,
    Option,
    PluginSpec,
    written,
)
from ckptbench.matrix.registry import (
    FAULTS,
    FORMAT_LABELS,
    FRAMEWORKS,
    HISTORIES,
    OMISSIONS,
    RECOVERIES,
    RESTART,
    STRATEGIES,
    formats_of,
)
from ckptbench.matrix.training import Training
from ckptbench.run.plan import Plan
from tests.study.selection import FULL

REGISTRIES: dict[str, Mapping[str, Entry]] = {
    "strategy": STRATEGIES,
    "faults": FAULTS,
    "recovery": RECOVERIES,
}
DRAWS = 300 if FULL else 30
NUMBERS = [
    0.5, 5.0, 0.05, 5.5, 50.0, 7.5, 0.1 + 0.2, 0.3, 1 / 3, 123456.7, 123457.0, 123456.75, 1234567.0, 1234567.1, 1e6, 999999.9,
    1e-5, 1.5e-7, 1e-9, 5e-324, 1e9, math.nextafter(1e9, 0), math.nextafter(60.0, 0), math.nextafter(60.0, 100),
]  # fmt: skip
"""Floats that a writer with fewer digits, or with exponents, would confuse or could not put into a name."""


def values(default: Option | tuple[str, ...], draw: random.Random) -> list[Option]:
    """Values that an option with this default can have, the odd ones first."""
    if isinstance(default, tuple):
        return list(default)
    if type(default) is bool:
        return [False, True]
    if type(default) is int:
        return [0, 1, 10, 100, LARGEST_OPTION, *(draw.randrange(LARGEST_OPTION) for _ in range(50))]
    if type(default) is float:
        drawn = [10 ** draw.uniform(-12, 9) for _ in range(DRAWS)]
        return [*NUMBERS, *drawn, *(round(each, 3) or 1.0 for each in drawn)]
    return ["a", "A", "05", "a_b", "name_a", "_name_a", "True", "_"]


def options_of_all() -> Iterator[tuple[str, str, str]]:
    for kind, registry in REGISTRIES.items():
        for name, entry in registry.items():
            for option in entry.options:
                yield kind, name, option


def chosen(kind: str, name: str, given: Mapping[str, Any]) -> PluginSpec:
    entry = REGISTRIES[kind][name]
    return PluginSpec.of(kind, name, given, entry)


@pytest.mark.parametrize(("kind", "name", "option"), list(options_of_all()))
def test_every_value_of_an_option_has_names_of_its_own_and_stands_in_the_columns_of_tables(
    kind: str, name: str, option: str
) -> None:
    entry = REGISTRIES[kind][name]
    draw = random.Random(f"{kind} {name} {option}")
    distinct = set(values(entry.options[option], draw))
    specs = {value: chosen(kind, name, {option: value}) for value in distinct}
    assert len({str(spec) for spec in specs.values()}) == len(distinct)
    if isinstance(choices := entry.options[option], tuple):
        assert str(specs[choices[0]]) == name, "the first choice is the default"
    assert len({spec.label for spec in specs.values()}) == len(distinct)
    for value, spec in specs.items():
        assert re.fullmatch(NAME, str(spec))
        is_default = not spec.options
        assert spec.columns("strategy") == {
            "strategy": name if is_default else f"{name} {option}={written(value)}",
            "strategy_name": name,
            "strategy_options": "{}" if is_default else json.dumps({option: value}),
        }


@pytest.mark.parametrize("kind", REGISTRIES)
def test_variants_with_several_options_have_names_of_their_own(kind: str) -> None:
    draw = random.Random(kind)
    known: dict[str, PluginSpec] = {}
    for name, entry in REGISTRIES[kind].items():
        for _ in range(DRAWS):
            given = {
                option: draw.choice(values(default, draw))
                for option, default in entry.options.items()
                if draw.random() < 0.7
            }
            spec = chosen(kind, name, given)
            assert known.setdefault(str(spec), spec) == spec


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0, -0.5, 0, -0.0, True, "5"])
def test_what_is_no_number_above_zero_has_no_name(value: object) -> None:
    with pytest.raises(ConfigError, match="use a number above 0, up to 1000000000"):
        chosen("faults", "exponential", {"mean_s": value})


STUDY = """
matrix: {framework: pytorch, model: small_cnn, dataset: digits, ranks: 2, batch_size: 16, epochs: 2, interval: 1, %s}
repeats: 1
training: {steps_per_epoch: 4, test_samples: 32}
%s
"""


def planned(matrix: str, rest: str = "") -> list[str]:
    """The names of the struck cells of a study."""
    content = yaml.load(STUDY % (matrix, rest), yaml.FullLoader)  # as Snakemake does
    return [cell.id for cell in expand(load_config(content)) if cell.is_struck]


@pytest.mark.parametrize(
    ("faults", "names"),
    [
        ("[{weibull: {shape: 0.5}}]", ["weibull_shape_0.5"]),
        ("[{exponential: {mean_s: 1000000}}]", ["exponential_mean_s_1000000"]),
        (
            "[{exponential: {mean_s: 123457}}, {exponential: {mean_s: 123456.7}}]",
            ["exponential_mean_s_123457", "exponential_mean_s_123456.7"],
        ),
        (
            "[{exponential: {mean_s: 1000000}}, {exponential: {mean_s: 1_000_000}}, {exponential: {mean_s: 1000000.0}},"
            " {exponential: {mean_s: 1.0e+6}}]",
            ["exponential_mean_s_1000000"],
        ),
        (
            "[{exponential: {mean_s: 7.50}}, {exponential: {mean_s: 7.5}}, {exponential: {mean_s: 75.0e-1}}]",
            ["exponential_mean_s_7.5"],
        ),
        ("[{exponential: {mean_s: 60.0}}, {exponential: {mean_s: 60}}, exponential]", ["exponential"]),
    ],
)  # fmt: skip
def test_every_setting_of_a_study_is_one_run(faults: str, names: list[str]) -> None:
    prefix = "pytorch-small_cnn-digits-r2-b16-n2-torch_save-e1"
    assert sorted(planned(f"faults: {faults}")) == sorted(f"{prefix}-{name}-rep0" for name in names)


LISTED = "faults: {listed: {name: %s}}"
LIST = "failures: {%s: [{step: 2, rank: 0}]}"


@pytest.mark.parametrize("name", ["two", "A_b"])
def test_a_list_of_failures_gives_its_name_to_the_run(name: str) -> None:
    assert planned(LISTED % name, LIST % name) == [
        f"pytorch-small_cnn-digits-r2-b16-n2-torch_save-e1-listed_name_{name}-rep0"
    ]


@pytest.mark.parametrize("name", ['"a b"', "a/b", "é", "a-ulfm", '"a\\nb"'])
def test_a_list_whose_name_a_run_cannot_have_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(ConfigError, match=r"failures\..* it should match pattern") as error:
        planned("faults: none", LIST % name)
    assert "\n" not in str(error.value)


def test_a_name_leaves_room_for_the_names_of_files(tmp_path: Path) -> None:
    """A folder of a local tier has the longest name."""
    near, lost = "strategy: {deepfreeze: {memory: 1, node: 2}}", "faults: {listed: {name: %s}}"
    with pytest.raises(ConfigError, match="of 239 that the names of its files can have"):
        planned(f"{near}, {lost % ('a' * 200)}", LIST % ("a" * 200))
    few = len(planned(f"{near}, {lost % 'a'}", LIST % "a")[0]) - 1
    longest = "a" * (239 - few)
    with pytest.raises(ConfigError, match="would have 240 characters"):
        planned(f"{near}, {lost % (longest + 'a')}", LIST % (longest + "a"))
    (name,) = planned(f"{near}, {lost % longest}", LIST % longest)
    (cell,) = [
        each
        for each in expand(load_config(yaml.safe_load(STUDY % (f"{near}, {lost % longest}", LIST % longest))))
        if each.id == name
    ]  # fmt: skip
    plan = Plan(
        cell=cell,
        training=Training(
            seed=1, learning_rate=0.1, momentum=0.9, weight_decay=0.0, steps_per_epoch=4,
            test_samples=None, warmup_steps=0, keep_during_run=2,
        ),
        dataset_folder=tmp_path,
        run_folder=tmp_path / name,
        checkpoint_folder=tmp_path / name / "checkpoints",
        memory_folder=tmp_path / "memory",
        node_folder=tmp_path / "node",
        run_id="0" * 32,
        dataset_sha256="1" * 64,
        lock_sha256="2" * 64,
    )  # fmt: skip
    folders = [store.folder for store in open_levels(plan, node="n1").local.values()]
    for folder in folders:
        folder.mkdir(parents=True)  # the kernel takes the name
    assert max(len(folder.name) for folder in folders) == 255


def test_two_different_cells_never_share_a_name() -> None:
    """Of all frameworks, with values of every axis that differ little."""
    faults = [
        PluginSpec("none"),
        *(chosen("faults", "exponential", {"mean_s": each}) for each in NUMBERS[:3]),
    ]
    faults += [chosen("faults", "listed", {"name": each}) for each in ("a", "a_b", "ulfm")]
    known: dict[str, Cell] = {}
    for framework, strategy, trace, recovery, history, every in itertools.product(
        FRAMEWORKS, STRATEGIES, faults, RECOVERIES, HISTORIES, ("e1", "e11", "s1", "never")
    ):  # fmt: skip
        for format in ("none", *formats_of(framework, strategy)):
            try:
                cell = Cell(
                    framework=framework, model="small_cnn", dataset="digits", ranks=2, batch_size=8, epochs=1, format=format,
                    interval=Interval.parse(every), strategy=PluginSpec(strategy), faults=trace, history=history,
                    recovery=PluginSpec(recovery),
                )  # fmt: skip
            except ConfigError:
                continue
            name = cell.id
            assert known.setdefault(name, cell) == cell
            assert re.fullmatch(NAME, name)
    assert len(known) > 1000


def test_registered_names_make_names_that_cannot_be_confused() -> None:
    """The parts of a name are joined by `-` and `_`, and those that may be left out stand for one thing alone."""
    several = [
        FRAMEWORKS,
        STRATEGIES,
        FAULTS,
        RECOVERIES,
        HISTORIES,
        OMISSIONS,
        FORMAT_LABELS,
        ARCHITECTURES,
        DATASETS,
    ]
    for name in itertools.chain(*several):
        assert re.fullmatch("[A-Za-z0-9_.]+", name)
    optional = [
        *FAULTS,
        *HISTORIES,
        *RECOVERIES,
        "adamw",
        "bf16",
        "deterministic",
        "cuda",
        "warm",
        "cold",
    ]
    assert len(set(optional)) == len(optional)


def test_environments_have_names_of_their_own() -> None:
    """`data`, `dev`, `main` and `build-constraints` are not of a framework."""
    owners: dict[str, tuple[str, str]] = {}
    for framework, (recovery, entry) in itertools.product(FRAMEWORKS, RECOVERIES.items()):
        if entry.serves(framework):
            of = framework, recovery if entry.own_environment else ""
            name = f"{framework}_{recovery}" if entry.own_environment else framework
            assert owners.setdefault(name, of) == of
    assert {"data", "dev", "main", "build-constraints"}.isdisjoint(owners)


def test_names_of_runs_that_are_there_stay_as_they_were() -> None:
    """Folders of earlier versions are found again."""
    assert [written(each) for each in (30.0, 240.0, 999999.0, 1, 10**9, True, "kill")] == [
        "30", "240", "999999", "1", "1000000000", "True", "kill",
    ]  # fmt: skip
    assert str(chosen("recovery", "restart", {"patience_s": 30})) == "restart_patience_s_30"
    assert str(RESTART) == "restart"

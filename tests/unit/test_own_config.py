"""The settings of a study of an own training: what is refused, and the runs that come of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from ckptbench.common.errors import ConfigError, RunFolderError
from ckptbench.launch.inheritance import is_secret
from ckptbench.own.cell import OwnCell, expand_own
from ckptbench.own.config import load_own_config, own_schema
from ckptbench.own.record import OwnStudy

ROOT = Path(__file__).resolve().parents[2]
COMMAND = "torchrun train.py --folder {folder} --save-every {interval}"
OWN: dict[str, Any] = {
    "command": COMMAND,
    "values": {"interval": [5, 15]},
    "baseline": {"interval": 1_000_000},
}


def cells(repeats: int = 1, **changes: Any) -> list[OwnCell]:
    return expand_own(load_own_config({"own": OWN | changes, "repeats": repeats}))


def refusal(**changes: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        cells(**changes)
    return str(caught.value)


def test_each_value_is_a_run_beside_the_baseline_in_its_block_and_blocks_turn_round() -> None:
    assert [cell.id for cell in cells(2)] == [
        "baseline-rep0", "interval_5-rep0", "interval_15-rep0",
        "interval_15-rep1", "interval_5-rep1", "baseline-rep1",
    ]  # fmt: skip


def test_values_and_the_folder_take_their_places() -> None:
    baseline, first, _ = cells(environment={"OUT": "{folder}/logs", "EVERY": "{interval}"})
    assert first.words("/tmp/a b") == ["torchrun", "train.py", "--folder", "/tmp/a b", "--save-every", "5"]  # fmt: skip
    assert first.variables("/tmp/a b") == {"OUT": "/tmp/a b/logs", "EVERY": "5"}
    assert (first.values, first.baseline, first.setup) == ({"interval": "5"}, baseline.id, "interval_5")  # fmt: skip
    assert baseline.words("f")[-1] == "1000000"
    assert (baseline.is_baseline, baseline.values, baseline.baseline) == (True, {}, baseline.id)


def test_a_baseline_that_leaves_a_placeholder_has_one_run_for_each_of_its_values() -> None:
    engines = {"plain": "", "async": "--async 1"}
    found = cells(command=f"{COMMAND} {{engine}}", values=OWN["values"] | {"engine": engines})
    assert {cell.id: cell.baseline for cell in found if not cell.is_baseline} == {
        f"interval_{interval}-engine_{engine}-rep0": f"baseline-engine_{engine}-rep0"
        for interval in (5, 15)
        for engine in engines
    }
    assert found[-1].words("f")[-2:] == ["--async", "1"]
    assert found[1].words("f")[-1] == "5"


def test_a_baseline_may_be_a_command_of_its_own() -> None:
    baseline, *_ = cells(baseline="python plain.py")
    assert (baseline.id, baseline.words("f")) == ("baseline-rep0", ["python", "plain.py"])


def test_braces_of_shells_and_of_the_command_itself_stay() -> None:
    _, first, _ = cells(command=COMMAND + """ bash -c 'echo ${HOME}' '{"a": 1}'""")
    assert first.words("f")[-2:] == ["echo ${HOME}", '{"a": 1}']


@pytest.mark.parametrize(
    ("changes", "field", "remedy"),
    [
        ({"command": "train {interval}"}, "own.command", "give it {folder}, as in --output {folder}"),
        ({"command": COMMAND + " {lr}"}, "own.command", "{lr} has no values: add them as own.values.lr"),
        ({"command": ""}, "own.command", "at least 1 character"),
        ({"command": " "}, "own.command", "there is no program in it"),
        ({"command": COMMAND + " 'x"}, "own.command", "quotes must come in pairs"),
        ({"command": COMMAND + " | tee log"}, "own.command", "bash -c"),
        ({"command": "cd x && " + COMMAND}, "own.command", "no shell reads the command, so && would be a word"),
        ({"command": "LR=1 " + COMMAND}, "own.command", "set the variable in own.environment"),
        ({"command": "ckptbench-probe run -- " + COMMAND}, "own.command", "write what follows --"),
        ({"values": {"interval": [5], "lr": [1]}}, "own.values.lr", "write {lr} into own.command, or remove them"),
        ({"values": {"interval": [5], "folder": ["x"]}}, "own.values.folder", "{folder} is made by the study: rename it"),
        ({"values": {"interval": [5, 5]}}, "own.values.interval", "a value is there twice"),
        ({"values": {"interval": []}}, "own.values.interval", "give at least one value"),
        ({"values": {"interval": 5}}, "own.values.interval", "use a list of values"),
        ({"values": {"interval": [True]}}, "own.values.interval", "goes into quotes"),
        ({"values": {"interval": ["a/b"]}}, "own.values.interval", "give it a label"),
        ({"values": {"interval": [1_000_000]}}, "own.values", "would be the same command"),
        ({"values": {"interval": ["5'"]}}, "own.values", "give it a label"),
        ({"values": {"interval": {"odd": "5'"}}}, "own.values", "quotes in a value must come in pairs"),
        ({"values": {"interval": ["x" * 250]}}, "own.values", "use shorter labels"),
        ({"values": {"interval": list(range(10_000))}}, "own.values", "at most 10,000 are allowed"),
        ({"values": []}, "own.values", "use a mapping"),
        ({"baseline": {"every": 1}}, "own.baseline.every", "no such placeholder (interval)"),
        ({"baseline": "train {every}"}, "own.baseline", "{every} has no values"),
        ({"baseline": 7}, "own.baseline", "as in {interval: 1000000}, or a whole command"),
        ({"environment": {"WANDB_API_KEY": "hunter2"}}, "own.environment.WANDB_API_KEY", "set a secret in the shell that starts Snakemake"),
        ({"environment": {"A": "{lr}"}}, "own.environment.A", "{lr} has no values"),
        ({"comand": "x"}, "own.comand", "did you mean command?"),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_place_and_a_remedy(
    changes: dict[str, Any], field: str, remedy: str
) -> None:
    assert any(field in line and remedy in line for line in refusal(**changes).splitlines()), (
        refusal(**changes)
    )


def test_the_matrix_of_the_other_study_has_no_place_here() -> None:
    with pytest.raises(
        ConfigError, match=r"matrix is .*beside own it has repeats, limits, decision"
    ):
        load_own_config({"own": OWN, "matrix": {"ranks": 1}})


def test_the_record_of_a_study_is_read_as_it_was_written(tmp_path: Path) -> None:
    study = OwnStudy(cells=tuple(cells(2)), keep=True, run_minutes=1.5, repeat=True)
    study.write(tmp_path / "own" / "study.json")
    assert OwnStudy.read(tmp_path / "own" / "study.json") == study
    (tmp_path / "other.json").write_text('{"format": 1, "cells": [{}]}')
    with pytest.raises(RunFolderError, match="start the workflow again"):
        OwnStudy.read(tmp_path / "other.json")


def test_the_config_that_ships_is_valid_by_models_and_by_schema() -> None:
    content = yaml.safe_load((ROOT / "config" / "own.yaml").read_text())
    assert len(expand_own(load_own_config(content))) == 9
    jsonschema.validate(content, own_schema())
    for wrong in ({"command": 3}, {"values": {"interval": [True]}}, {"x": 1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"own": content["own"] | wrong}, own_schema())


def test_a_secret_is_not_repeated_by_the_error_that_refuses_it() -> None:
    found = refusal(environment={"HF_TOKEN": "hunter2"})
    assert "HF_TOKEN" in found
    assert "hunter2" not in found


def test_what_only_sounds_like_a_secret_is_taken() -> None:
    checked = ("TOKENIZERS_PARALLELISM", "MAX_TOKENS", "AUTHOR", "KEYSTONE")
    assert not any(map(is_secret, checked))

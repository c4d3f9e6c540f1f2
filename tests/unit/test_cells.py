"""What a cell is called, and which cells there can be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ckptbench.errors import ConfigError
from ckptbench.matrix.catalogue import FRAMEWORKS, STRATEGIES, StrategyEntry
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.interval import NEVER, Interval
from ckptbench.matrix.variant import Variant


def cell(**changes: object) -> Cell:
    fields: dict[str, object] = {
        "framework": "pytorch",
        "model": "resnet50",
        "dataset": "digits",
        "ranks": 2,
        "batch_size": 8,
        "epochs": 3,
        "format": "torch_save",
        "interval": Interval.parse("e1"),
    }
    return Cell(**{**fields, **changes})  # type: ignore[arg-type]


def test_an_id_is_readable() -> None:
    assert cell().id == "pytorch-resnet50-digits-r2-b8-n3-torch_save-e1-rep0"
    assert cell().baseline.id == "pytorch-resnet50-digits-r2-b8-n3-never-rep0"


def test_every_field_that_is_not_usual_shows_in_the_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STRATEGIES, "async", StrategyEntry(location="a:b", stages=("begun",)))
    unusual = cell(deterministic=True, accelerator="cuda", strategy=Variant("async"), repeat=2)
    assert unusual.id == (
        "pytorch-resnet50-digits-r2-b8-n3-async-torch_save-e1-deterministic-cuda-rep2"
    )


def test_formats_share_a_baseline() -> None:
    assert cell(format="safetensors").baseline == cell(format="torch_save").baseline


def test_a_cell_goes_through_json_unchanged() -> None:
    for each in (cell(), cell().baseline):
        assert Cell.from_json(each.to_json()) == each


def test_the_environment_follows_framework_and_accelerator() -> None:
    assert cell().environment == "pytorch"
    assert cell(accelerator="cuda").environment == "pytorch-cuda"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"framework": "no_such_framework"}, f"unknown framework .*: use {', '.join(FRAMEWORKS)}"),
        ({"format": "npz"}, "pytorch does not write npz: use torch_save, safetensors, hdf5"),
        ({"interval": NEVER}, "only a baseline has no format"),
        ({"format": "none"}, "only a baseline has no format"),
    ],
)
def test_an_impossible_cell_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        cell(**changes)


@pytest.mark.parametrize("text", ["never", "e1", "s50"])
def test_an_interval_is_written_as_it_is_read(text: str) -> None:
    assert str(Interval.parse(text)) == text


@pytest.mark.parametrize("text", ["e0", "1", "s-3", "always", ""])
def test_no_other_interval_is_read(text: str) -> None:
    with pytest.raises(ConfigError, match="is none of"):
        Interval.parse(text)


@pytest.mark.parametrize(
    ("interval", "due"), [("never", []), ("e1", [4, 8, 12]), ("e2", [8]), ("s5", [5, 10])]
)
def test_a_checkpoint_is_due_after_every_interval(interval: str, due: list[int]) -> None:
    parsed = Interval.parse(interval)
    steps = [n for n in range(1, 13) if parsed.due(steps_done=n, steps_per_epoch=4)]
    assert steps == due


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"strategy": Variant("no_such_strategy")},
            'unknown strategy "no_such_strategy": use native',
        ),
        (
            {"recovery": Variant("no_such_recovery")},
            'unknown recovery "no_such_recovery": use restart',
        ),
        (
            {"strategy": Variant("native", (("levels", "memory"),))},
            "strategy native has no option 'levels': it takes none",
        ),
        (
            {"strategy": Variant("local")},
            "strategy local does not serve pytorch: use it with chainer",
        ),
        (
            {
                "strategy": Variant("local", (("every", "often"),)),
                "framework": "chainer",
                "format": "npz",
            },
            "strategy local: every is 'often', use a value like 1",
        ),
    ],
)
def test_a_strategy_or_recovery_that_is_not_registered_so_is_refused(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], message: str
) -> None:
    entry = StrategyEntry(
        location="local:Local", frameworks=("chainer",), stages=("begun",), options={"every": 1}
    )
    monkeypatch.setitem(STRATEGIES, "local", entry)
    with pytest.raises(ConfigError) as error:
        cell(**fields)
    assert message in str(error.value)


def test_options_of_a_strategy_are_in_the_id_and_survive_json(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry = StrategyEntry(location="local:Local", stages=("begun",), options={"every": 1})
    monkeypatch.setitem(STRATEGIES, "local", entry)
    chosen = Variant.of("strategy", "local", {"every": 3}, entry.options)
    one = cell(strategy=chosen)
    assert "-local_every_3-" in one.id
    assert Cell.from_json(json.loads(json.dumps(one.to_json()))) == one
    assert one.baseline.strategy == Variant("native")
    assert Variant.of("strategy", "local", {"every": 1}, entry.options) == Variant("local")
    assert chosen.chosen(entry.options) == {"every": 3}

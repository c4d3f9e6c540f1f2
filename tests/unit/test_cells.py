"""What a cell is called, and which cells there can be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ckptbench.common.errors import ConfigError
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.interval import NEVER, Interval
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.registry import (
    FRAMEWORKS,
    RECOVERIES,
    STRATEGIES,
    RecoveryEntry,
    StrategyEntry,
)


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
    unusual = cell(deterministic=True, accelerator="cuda", strategy=PluginSpec("async"), repeat=2)
    assert unusual.id == (
        "pytorch-resnet50-digits-r2-b8-n3-async-torch_save-e1-deterministic-cuda-rep2"
    )


def test_optimizer_and_precision_show_where_they_are_not_the_first_ones() -> None:
    chosen = cell(model="gpt2", dataset="text", optimizer="adamw", precision="bf16")
    assert chosen.id == "pytorch-gpt2-text-r2-b8-n3-adamw-bf16-torch_save-e1-rep0"
    assert (chosen.baseline.optimizer, chosen.baseline.precision) == ("adamw", "bf16")
    assert Cell.from_json(json.loads(json.dumps(chosen.to_json()))) == chosen


def test_a_cell_of_before_there_were_optimizers_is_the_same_one() -> None:
    """Its manifest, its checkpoints and its folder stay valid."""
    before = cell().to_json()
    assert not {"optimizer", "precision"} & set(before)
    assert Cell.from_json(before) == cell(optimizer="sgd", precision="fp32")


@pytest.mark.parametrize(
    ("framework", "fields", "words"),
    [
        (
            "numpy",
            {"optimizer": "adamw"},
            "numpy does not have optimizer adamw: use it with pytorch, ",
        ),
        ("jax", {"accelerator": "cuda"}, "jax has no environment for accelerator cuda: use accele"),
        (
            "chainer",
            {"precision": "bf16"},
            "chainer does not have precision bf16: use it with pytorch, ",
        ),
        (
            "numpy",
            {"model": "gpt_baby"},
            "numpy does not have the layers of models that learn from tokens: use it with pytorch, ",
        ),
    ],
)
def test_a_framework_says_by_name_what_it_has_not(
    framework: str, fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        cell(framework=framework, format="npz", **fields)


def test_adamw_learns_at_the_same_rate_however_its_gradients_are_weighed() -> None:
    """It divides them by their own size, so a recovery that weighs them changes nothing."""
    struck = {"faults": PluginSpec("exponential")}
    for name in ("ulfm", "torchft"):
        scaled = PluginSpec(name, (("learning_rate", "scaled"),))
        cell(recovery=scaled, **struck)
        cell(recovery=PluginSpec(name), optimizer="adamw", **struck)
        with pytest.raises(ConfigError, match="learning_rate scaled does nothing with optimizer a"):
            cell(recovery=scaled, optimizer="adamw", **struck)


def test_formats_share_a_baseline() -> None:
    assert cell(format="safetensors").baseline == cell(format="torch_save").baseline


def test_a_cell_goes_through_json_unchanged() -> None:
    for each in (cell(), cell().baseline):
        assert Cell.from_json(each.to_json()) == each


def test_the_environment_follows_framework_and_accelerator() -> None:
    assert cell().environment == "pytorch"
    assert cell(accelerator="cuda").environment == "pytorch-cuda"
    assert cell(framework="pytorch_fsdp").environment == "pytorch"
    assert cell(framework="pytorch_fsdp", accelerator="cuda").environment == "pytorch-cuda"


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
    with pytest.raises(ConfigError, match="is not one of"):
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
            {"strategy": PluginSpec("no_such_strategy")},
            'unknown strategy "no_such_strategy": use native',
        ),
        (
            {"recovery": PluginSpec("no_such_recovery")},
            'unknown recovery "no_such_recovery": use restart',
        ),
        (
            {"strategy": PluginSpec("native", (("levels", "memory"),))},
            "strategy native has no option 'levels': it takes none",
        ),
        (
            {"strategy": PluginSpec("local")},
            "strategy local does not serve pytorch: use it with chainer",
        ),
        (
            {
                "strategy": PluginSpec("local", (("every", "often"),)),
                "framework": "chainer",
                "format": "npz",
            },
            "strategy local: every is 'often', use a whole number from 0 to 1000000000",
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
    chosen = PluginSpec.of("strategy", "local", {"every": 3}, entry)
    one = cell(strategy=chosen)
    assert "-local_every_3-" in one.id
    assert Cell.from_json(json.loads(json.dumps(one.to_json()))) == one
    assert one.baseline.strategy == PluginSpec("native")
    assert PluginSpec.of("strategy", "local", {"every": 1}, entry) == PluginSpec("local")
    assert chosen.chosen(entry.options) == {"every": 3}


EXPONENTIAL = PluginSpec("exponential")


@pytest.fixture
def recoveries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registers `shrink`, which is elastic and has its own environment, and `agent`, which is neither."""
    halves = {"launcher": "no_such_module:Launcher", "rank": "no_such_module:Rank"}
    options = {"patience_s": 10.0}
    shrink = RecoveryEntry(
        **halves,
        frameworks=("pytorch",),
        strategies=("native",),
        own_environment=True,
        elastic=True,
        options=options,
    )
    monkeypatch.setitem(RECOVERIES, "shrink", shrink)
    monkeypatch.setitem(RECOVERIES, "agent", RecoveryEntry(**halves, options=options))


@pytest.mark.usefixtures("recoveries")
def test_a_recovery_has_its_own_environment_where_it_needs_packages() -> None:
    struck = cell(faults=EXPONENTIAL, recovery=PluginSpec("shrink"))
    assert struck.environment == struck.baseline.environment == "pytorch_shrink"
    assert cell(faults=EXPONENTIAL, recovery=PluginSpec("agent")).environment == "pytorch"


@pytest.mark.usefixtures("recoveries")
@pytest.mark.parametrize(("name", "kept"), [("shrink", "shrink"), ("agent", "restart")])
def test_an_elastic_recovery_is_compared_with_undisturbed_runs_that_have_it(
    name: str, kept: str
) -> None:
    patient = PluginSpec(name, (("patience_s", 30.0),))
    struck = cell(faults=EXPONENTIAL, recovery=patient)
    assert struck.reference == cell(recovery=PluginSpec(kept))
    assert struck.baseline == cell(recovery=PluginSpec(kept)).baseline
    assert struck.baseline.recovery == PluginSpec(kept)
    assert struck.reference.reference == struck.reference
    assert cell(faults=EXPONENTIAL, recovery=PluginSpec(kept)).baseline == struck.baseline


@pytest.mark.usefixtures("recoveries")
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"framework": "chainer", "format": "npz", "recovery": PluginSpec("shrink")},
            "recovery shrink does not serve chainer: use it with pytorch",
        ),
        (
            {
                "strategy": PluginSpec("sharded"),
                "format": "safetensors",
                "recovery": PluginSpec("shrink"),
            },
            "recovery shrink does not go with strategy sharded: use it with native",
        ),
        (
            {"accelerator": "cuda", "faults": EXPONENTIAL, "recovery": PluginSpec("shrink")},
            "recovery shrink has no environment for accelerator cuda: use accelerator cpu, or recovery restart",
        ),
        (
            {"framework": "pytorch_hsdp", "ranks": 3},
            "pytorch_hsdp with 3 ranks: each shard is on 2 of them; use ranks that 2 divides",
        ),
        (
            {"accelerator": "cuda", "faults": EXPONENTIAL, "recovery": PluginSpec("reinit")},
            "recovery reinit is for accelerator cpu: on a GPU survivors would wait for a lost rank for ever; use recovery restart",
        ),
        (
            {"faults": PluginSpec("killed_inside"), "recovery": PluginSpec("agent")},
            "recovery agent with faults killed_inside: they are there to compare restarts; use recovery restart, or other "
            "faults",
        ),
        (
            {"recovery": PluginSpec("agent")},
            "recovery agent with faults none: there is nothing to recover from; use recovery restart, or other faults",
        ),
        (
            {"recovery": PluginSpec("shrink", (("patience_s", 30.0),))},
            "recovery shrink_patience_s_30 with faults none: there is nothing to recover from; use recovery shrink, or "
            "other faults",
        ),
    ],
)
def test_a_recovery_that_the_cell_cannot_have_is_refused(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        cell(**fields)
    assert str(error.value) == message


@pytest.mark.usefixtures("recoveries")
def test_an_elastic_recovery_can_be_undisturbed_and_on_a_gpu_where_it_needs_no_packages() -> None:
    assert cell(recovery=PluginSpec("shrink")).is_undisturbed
    assert cell(history="rerun", recovery=PluginSpec("shrink")).reference.recovery == PluginSpec(
        "shrink"
    )
    on_gpu = cell(accelerator="cuda", faults=EXPONENTIAL, recovery=PluginSpec("agent"))
    assert on_gpu.environment == "pytorch-cuda"

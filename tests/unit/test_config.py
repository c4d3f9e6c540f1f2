"""The config file: what it says when it is wrong, what it expands into, and its schema."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from ckptbench.common.errors import ConfigError
from ckptbench.config.expansion import expand
from ckptbench.config.planning import check_source, leave_out
from ckptbench.config.study import load_config, schema
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.registry import FRAMEWORKS, on_any_ranks
from ckptbench.matrix.training import proven_by

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = [ROOT / "config" / "config.yaml", *sorted((ROOT / "config" / "studies").glob("*.yaml"))]
UNKNOWN = "no_such_framework"
USUAL = ["chainer", "pytorch", "tensorflow"]


def cells(**content: Any) -> list[Cell]:
    return expand(load_config(content))


def test_frameworks_that_cannot_be_had_are_left_out_where_the_config_asks_for_available_ones() -> (
    None
):
    missing = {"chainer": "Python 3.11: load it", "pytorch_ulfm": "Python 3.11: load it"}
    for named, expected in (
        ("available", {"pytorch", "tensorflow"}),
        (["chainer", "jax", "available"], {"jax"}),
    ):
        config = load_config({"matrix": {"framework": named}})
        left, words = leave_out(config, expand(config), missing.get)
        assert {cell.framework for cell in left} == expected
        assert words == "Left out: chainer, which needs Python 3.11: load it."
    there = {"environments": {"chainer": "present"}, "matrix": {"framework": "available"}}
    for content in ({"matrix": {"framework": ["chainer", "pytorch"]}}, there):
        config = load_config(content)
        assert leave_out(config, expand(config), missing.get) == (expand(config), "")


def test_what_is_left_out_is_a_recovery_alone_where_only_that_cannot_be_had() -> None:
    matrix = {"framework": ["pytorch", "available"], "ranks": 2, "faults": "killed", "interval": 1}
    config = load_config({"matrix": {**matrix, "faults": {"exponential": {"mean_s": 9}}, "recovery": ["restart", "ulfm"]}})  # fmt: skip
    left, words = leave_out(config, expand(config), {"pytorch_ulfm": "a moon"}.get)
    assert {cell.recovery.name for cell in left} == {"restart"}
    assert words == "Left out: pytorch with ulfm, which needs a moon."


def test_a_study_of_which_nothing_is_left_is_refused() -> None:
    config = load_config({"matrix": {"framework": ["chainer", "available"]}})
    words = r"matrix\.framework .*: none of its frameworks can train on this machine: chainer, which needs a moon"
    with pytest.raises(ConfigError, match=words):
        leave_out(config, expand(config), {"chainer": "a moon"}.get)


def test_each_wrong_value_of_merged_files_has_a_line_with_its_field(tmp_path: Path) -> None:
    default, study = tmp_path / "config.yaml", tmp_path / "study.yaml"
    default.write_text("repeats: -1\nmatrix: {ranks: [1, 2], epochs: 0}\n")
    study.write_text("matrix: {ranks: [1, 0]}\n")
    content = {"repeats": -1, "matrix": {"ranks": [1, 0], "epochs": 0}}
    with pytest.raises(ConfigError) as caught:
        load_config(content, [default, study])
    assert str(caught.value).splitlines() == [
        f"{default} and {study}: {field}: it should be greater than or equal to 1"
        for field in ("matrix.ranks[1] is 0", "matrix.epochs[0] is 0", "repeats is -1")
    ]


def test_lists_are_sweeps_and_every_interval_gets_its_baseline() -> None:
    expanded = cells(
        matrix={"framework": "pytorch", "ranks": [1, 2], "interval": [1, 2]}, repeats=2
    )
    count = Counter((cell.ranks, str(cell.interval)) for cell in expanded)
    assert count == {(r, i): 2 for r in (1, 2) for i in ("never", "e1", "e2")}
    assert {cell.baseline for cell in expanded} <= set(expanded)


def test_a_named_format_is_used_with_the_frameworks_that_write_it() -> None:
    matrix = {"framework": USUAL, "format": ["hdf5", "npz"], "interval": 1, "ranks": 1}
    expanded = cells(matrix=matrix, repeats=1)
    written = {(cell.framework, cell.format) for cell in expanded if not cell.is_baseline}
    assert written == {
        ("chainer", "hdf5"), ("chainer", "npz"), ("pytorch", "hdf5"), ("tensorflow", "hdf5"),
    }  # fmt: skip


def test_all_frameworks_are_those_of_the_registry_in_its_order() -> None:
    small = {"ranks": 1, "interval": "never"}
    for every in ("all", ["all"]):
        expanded = cells(matrix={**small, "framework": every}, repeats=1)
        assert [cell.framework for cell in expanded] == on_any_ranks()
    some = cells(matrix={**small, "framework": ["pytorch", "all"]}, repeats=1)
    assert [cell.framework for cell in some] == sorted(on_any_ranks(), key="pytorch".__ne__)


def test_all_frameworks_can_be_included_and_excluded() -> None:
    matrix = {"framework": "pytorch", "ranks": 1, "interval": "never"}
    added = cells(matrix=matrix, include=[{"framework": "all", "ranks": 2}], repeats=1)
    assert [cell.framework for cell in added if cell.ranks == 2] == on_any_ranks()
    kept = cells(matrix={**matrix, "ranks": [1, 2]}, exclude=[{"framework": "all", "ranks": 2}])
    assert {cell.ranks for cell in kept} == {1}


def test_a_compiled_framework_is_never_a_default() -> None:
    assert not any(FRAMEWORKS[cell.framework].optional for cell in cells())


def test_exclude_drops_what_matches_every_field() -> None:
    dropped = [{"framework": "chainer", "ranks": [2]}, {"framework": "tensorflow"}]
    expanded = cells(matrix={"framework": USUAL}, exclude=dropped)
    assert {(cell.framework, cell.ranks) for cell in expanded} == {
        ("chainer", 1), ("pytorch", 1), ("pytorch", 2),
    }  # fmt: skip


def test_exclude_knows_a_format_by_its_name_and_as_the_default() -> None:
    for name in ("torch_save", "default"):
        expanded = cells(matrix={"framework": "pytorch"}, exclude=[{"format": name}])
        assert all(cell.is_baseline for cell in expanded)


def test_include_adds_single_cells_with_their_baseline() -> None:
    matrix = {"framework": "pytorch", "ranks": 1, "interval": "never"}
    added = {"ranks": 2, "format": "safetensors", "interval": "50 steps"}
    ids = [cell.id for cell in cells(matrix=matrix, include=[added], repeats=1)]
    assert ids == [
        "pytorch-resnet50-digits-r1-b32-n3-never-rep0",
        "pytorch-resnet50-digits-r2-b32-n3-never-rep0",
        "pytorch-resnet50-digits-r2-b32-n3-safetensors-s50-rep0",
    ]


def test_include_of_a_format_takes_the_first_interval_that_writes() -> None:
    matrix = {"framework": "pytorch", "ranks": 1, "interval": ["never", 2]}
    ids = {cell.id for cell in cells(matrix=matrix, include=[{"format": "hdf5"}], repeats=1)}
    assert "pytorch-resnet50-digits-r1-b32-n3-hdf5-e2-rep0" in ids
    with pytest.raises(ConfigError, match=r"include\[0\]: it names a format and no interval"):
        cells(matrix={"interval": "never"}, include=[{"format": "hdf5", "framework": "pytorch"}])


def test_baselines_run_beside_their_cells_first_in_even_repeats_last_in_odd() -> None:
    matrix = {"framework": "pytorch", "ranks": 1, "format": ["torch_save", "hdf5"], "interval": 1}
    order = [cell.format for cell in cells(matrix=matrix, repeats=2)]
    assert order == ["none", "torch_save", "hdf5", "torch_save", "hdf5", "none"]


KILLED = {
    "framework": ["chainer", "pytorch"],
    "ranks": [1, 2],
    "interval": 1,
    "faults": "killed_between",
    "deterministic": True,
}
PROOF = {"proof": True}


def test_a_killed_cell_brings_its_uninterrupted_one_before_it_and_no_baseline() -> None:
    matrix = {**KILLED, "framework": "pytorch", "ranks": 1}
    expanded = cells(matrix=matrix, training=PROOF, repeats=2)
    assert [(cell.disturbance, cell.repeat) for cell in expanded] == [
        ("whole", 0), ("killed_between", 0), ("whole", 1), ("killed_between", 1),
    ]  # fmt: skip
    assert not any(cell.is_baseline for cell in expanded)


def test_an_omission_is_used_with_the_frameworks_and_ranks_that_need_the_part() -> None:
    matrix = {**KILLED, "model": "small_cnn", "omit": ["random", "statistics"]}
    found = {
        (cell.framework, cell.ranks, cell.omit)
        for cell in cells(matrix=matrix, training=PROOF)
        if cell.is_killed
    }
    assert found == {
        ("chainer", 1, "random"), ("chainer", 2, "random"), ("chainer", 2, "statistics"),
        ("pytorch", 1, "random"), ("pytorch", 2, "random"),
    }  # fmt: skip


def test_an_omission_in_default_mode_is_an_error() -> None:
    matrix = {**KILLED, "model": "small_cnn", "omit": "momentum", "deterministic": False}
    with pytest.raises(ConfigError, match="omit momentum needs deterministic: true"):
        cells(matrix=matrix, training=PROOF)


def test_an_omission_that_no_cell_needs_is_an_error() -> None:
    matrix = {**KILLED, "model": "small_cnn", "omit": ["random", "dropout"]}
    with pytest.raises(
        ConfigError,
        match=r"matrix.omit\[1\] is 'dropout': no cell .*: omit dropout changes no restart of chainer",
    ):
        cells(matrix=matrix, training=PROOF)
    with pytest.raises(
        ConfigError, match="the matrix is empty: omit and cache need a run that is killed"
    ):
        cells(matrix={"interval": 1, "omit": "random"}, training=PROOF)


def test_a_history_or_cache_that_no_cell_can_have_is_an_error() -> None:
    matrix = {"interval": "never", "faults": ["none", "killed_between"]}
    with pytest.raises(ConfigError, match=r"matrix.faults\[1\] is .* needs an interval"):
        cells(matrix=matrix, training=PROOF)
    with pytest.raises(ConfigError, match=r"matrix.cache\[1\] is 'cold'"):
        cells(matrix={"interval": 1, "cache": ["warm", "cold"]}, training=PROOF)


STRUCK: dict[str, Any] = {
    "model": "small_cnn",
    "ranks": 2,
    "interval": 1,
    "faults": ["none", "exponential"],
}


def test_a_recovery_is_used_with_what_it_serves_and_brings_its_undisturbed_runs() -> None:
    recoveries = ["restart", "torchrun", "reinit", "torchft", "ulfm"]
    matrix = {
        **STRUCK,
        "framework": ["all", "pytorch_hsdp"],
        "strategy": ["native", "sharded"],
        "recovery": recoveries,
    }
    found = Counter(
        (cell.recovery.name, cell.framework, cell.is_struck, cell.is_baseline, cell.strategy.name)
        for cell in cells(matrix=matrix, repeats=1)
    )
    assert set(found.values()) == {1}
    everywhere = {
        ("restart", framework, struck, False, strategy)
        for framework in FRAMEWORKS
        for struck in (False, True)
        for strategy in ("native", "sharded")
    }
    baselines = {("restart", framework, False, True, "native") for framework in FRAMEWORKS}
    struck_alone = {
        (recovery, framework, True, False, strategy)
        for recovery in ("torchrun", "reinit")
        for framework in ("pytorch", "pytorch_fsdp", "pytorch_hsdp")
        for strategy in ("native", "sharded")
    }
    served = {
        "torchft": ("pytorch",),
        "ulfm": ("chainer", "pytorch", "tensorflow"),
    }
    elastic = {
        (recovery, framework, *how, "native")
        for recovery, frameworks in served.items()
        for framework in frameworks
        for how in ((False, True), (False, False), (True, False))
    }
    assert set(found) == everywhere | baselines | struck_alone | elastic


def test_a_recovery_that_no_cell_can_have_is_an_error() -> None:
    matrix = {**STRUCK, "framework": "tensorflow", "recovery": ["restart", "torchft"]}
    with pytest.raises(
        ConfigError, match=r"matrix.recovery\[1\] is .*torchft does not serve tensor"
    ):
        cells(matrix=matrix)
    matrix = {**STRUCK, "framework": ["chainer", "pytorch"], "recovery": ["restart", "torchft"]}
    with pytest.raises(ConfigError, match=r"matrix.recovery\[1\] is .*use accelerator cpu"):
        cells(matrix=matrix, accelerator="cuda")
    matrix = {
        **STRUCK,
        "framework": "pytorch",
        "faults": "none",
        "recovery": ["restart", "torchrun"],
    }
    with pytest.raises(ConfigError, match=r"matrix.recovery\[1\] is .*nothing to recover from"):
        cells(matrix=matrix)


def test_odd_repeats_run_backwards() -> None:
    matrix = {"framework": "pytorch", "ranks": [1, 2], "interval": "never"}
    order = [(cell.repeat, cell.ranks) for cell in cells(matrix=matrix, repeats=2)]
    assert order == [(0, 1), (0, 2), (1, 2), (1, 1)]


def test_an_omission_that_the_network_or_the_optimizer_cannot_feel_is_an_error() -> None:
    matrix = {**KILLED, "ranks": 2, "omit": "random"}
    with pytest.raises(ConfigError, match="plain_cnn has no Dropout layer"):
        cells(matrix={**matrix, "model": "plain_cnn"}, training=PROOF)
    assert cells(matrix={**matrix, "model": "small_cnn"}, training=PROOF)
    with pytest.raises(ConfigError, match=r"training\.momentum is 0"):
        cells(matrix={**matrix, "omit": "momentum"}, training={**PROOF, "momentum": 0})


def test_a_model_is_used_with_the_datasets_whose_images_it_takes() -> None:
    matrix = {"framework": "pytorch", "ranks": 1, "interval": "never", "model": ["resnet50", "nt3"]}
    made = {"synthetic": {"height": 60, "width": 1, "channels": 1}}
    found = cells(matrix={**matrix, "dataset": ["digits", "synthetic"]}, datasets=made, repeats=1)
    assert [(cell.model, cell.dataset) for cell in found] == [
        ("resnet50", "digits"), ("resnet50", "synthetic"), ("nt3", "synthetic"),
    ]  # fmt: skip
    reason = (
        "the dataset digits does not fit: nt3 needs images of 38 rows or more, and these have 32"
    )
    with pytest.raises(
        ConfigError, match=rf"matrix.model\[1\] is 'nt3': no cell .*: {reason}: use"
    ):
        cells(matrix=matrix)
    with pytest.raises(ConfigError, match=f"the matrix is empty: {reason}"):
        cells(matrix={**matrix, "model": "nt3"})


def test_a_control_of_nt3_is_looked_at_with_the_images_of_its_dataset() -> None:
    matrix = {**KILLED, "model": "nt3", "dataset": "synthetic", "omit": ["random", "statistics"]}
    made = {"synthetic": {"height": 38, "width": 1, "channels": 1}}
    with pytest.raises(ConfigError, match=r"'statistics': .*nt3 has no BatchNorm layer"):
        cells(matrix={**matrix, "ranks": 2}, training=PROOF, datasets=made)


def test_a_run_that_is_surely_too_short_to_be_killed_is_an_error_before_anything_runs() -> None:
    training = {**PROOF, "steps_per_epoch": 2}
    matrix = {**KILLED, "epochs": 2, "faults": "killed_thrice"}
    with pytest.raises(ConfigError, match=r"the cell chainer-.*-rep0 cannot be: a run of 4 steps"):
        cells(matrix=matrix, training=training)
    assert cells(matrix={**matrix, "epochs": 8}, training=training)


def test_a_history_without_a_proof_is_an_error() -> None:
    with pytest.raises(
        ConfigError, match=r"training\.proof is false: runs with history rerun or killed faults"
    ):
        cells(matrix=KILLED)


def test_include_adds_the_product_of_its_lists() -> None:
    matrix = {"framework": "pytorch", "ranks": 1, "interval": ["never", 1]}
    added = [{"history": "rerun", "ranks": [1, 2]}, {"faults": "killed_inside", "ranks": [1, 2]}]
    expanded = cells(matrix=matrix, include=added, training=PROOF, repeats=1)
    assert {(cell.disturbance, cell.ranks, str(cell.interval)) for cell in expanded} == {
        ("whole", 1, "never"), ("whole", 1, "e1"), ("rerun", 1, "e1"), ("killed_inside", 1, "e1"),
        ("whole", 2, "e1"), ("rerun", 2, "e1"), ("killed_inside", 2, "e1"),
    }  # fmt: skip


def test_an_entry_of_include_may_have_fewer_repeats_which_run_after_the_others() -> None:
    matrix = {"framework": "pytorch", "ranks": 1, "interval": ["never", 1]}
    once = [{"ranks": 2, "interval": 1, "repeats": 1}]
    found = [(cell.ranks, str(cell.interval), cell.repeat) for cell in cells(matrix=matrix, include=once)]  # fmt: skip
    assert found == [
        (1, "never", 0), (1, "e1", 0), (1, "e1", 1), (1, "never", 1), (1, "never", 2), (1, "e1", 2),
        (2, "never", 0), (2, "e1", 0),
    ]  # fmt: skip
    twice = cells(matrix=matrix, include=[{"ranks": 2, "repeats": 9}], repeats=1)
    assert {cell.repeat for cell in twice} == {0}
    with pytest.raises(ConfigError, match=r"exclude\[0\]\.repeats is 1: there is no such field"):
        cells(matrix=matrix, exclude=[once[0]])


def test_an_entry_of_include_shares_the_baseline_of_cells_with_more_repeats() -> None:
    matrix = {"framework": "pytorch", "ranks": 1, "interval": ["never", 1]}
    found = cells(matrix=matrix, include=[{"format": "hdf5", "repeats": 1}], repeats=2)
    assert len(found) == len({*found}) == 5
    assert found[-1].format == "hdf5"


def test_a_proof_of_compared_runs_is_one_of_these_and_of_their_references_alone() -> None:
    config = load_config({"matrix": {"framework": "pytorch", "ranks": 1, "interval": ["never", 1]},
                          "include": [{"faults": "killed_inside", "deterministic": True}],
                          "training": {"proof": "compared"}, "repeats": 1})  # fmt: skip
    found = expand(config)
    proven, training = proven_by(found), config.training_of_cells()
    assert {cell: training.of(cell, proven).proof for cell in found} == {
        cell: cell.deterministic for cell in found
    }
    assert [str(cell.faults) for cell in found if cell.deterministic] == ["none", "killed_inside"]
    assert all(dataclasses.replace(training, proof=True).of(each, proven).proof for each in found)


def test_the_accelerator_is_the_same_for_all_cells() -> None:
    assert {cell.accelerator for cell in cells(accelerator="cuda")} == {"cuda"}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_config_that_ships_is_valid_by_models_and_by_schema(path: Path) -> None:
    content = yaml.safe_load(path.read_text())
    assert expand(load_config(content))
    jsonschema.validate(content, schema())


def test_the_study_of_deepfreeze_gives_each_model_its_own_data_and_batches() -> None:
    path = ROOT / "config" / "studies" / "deepfreeze.yaml"
    config = load_config(yaml.safe_load(path.read_text(encoding="utf-8")))
    found = expand(config)
    assert {(cell.model, cell.dataset, cell.batch_size) for cell in found} == {
        ("resnet50", "digits", 16), ("nt3", "synthetic", 1),
    }  # fmt: skip
    made = config.datasets.synthetic
    assert (made.sample_shape, made.classes) == ((60_483, 1, 1), 2)
    assert (made.train_samples, made.test_samples) == (1120, 280)
    written = {(cell.ranks, cell.strategy.name, str(cell.interval)) for cell in found}
    strategies = [strategy.name for strategy in config.matrix.strategy]
    for strategy in strategies:
        assert {(ranks, strategy, each) for ranks in (1, 2) for each in ("e1", "s3")} <= written
    assert len(found) == 2 * 2 * (1 + 2 * len(strategies))


def test_the_schema_refuses_what_the_models_refuse() -> None:
    for wrong in ({"matrix": {"ranks": 0}}, {"matrix": {"framework": UNKNOWN}}, {"unknown": 1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema())


def test_docstrings_of_fields_are_read_for_the_schema_alone() -> None:
    """Finding and parsing the source of each class takes a tenth of the time of a command."""
    program = (
        "import linecache; from ckptbench.config.study import schema; read = set(linecache.cache);"
        "schema(); print(*({*linecache.cache} - read)); print(*read)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)  # fmt: skip
    for_schema, before = done.stdout.splitlines()
    assert "config/study.py" in for_schema
    assert "ckptbench" not in before


def test_every_field_and_option_is_explained_on_a_page() -> None:
    pages = ("config/README.md", "docs/strategies.md", "docs/trainers.md")
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in pages)
    missing = [name for name in field_names(schema()) if not re.search(rf"`{name}\b", text)]
    assert not missing


def field_names(part: Any) -> set[str]:
    if isinstance(part, list):
        return {name for item in part for name in field_names(item)}
    if not isinstance(part, dict):
        return set()
    own = set(part.get("properties", {}))
    return own | {name for value in part.values() for name in field_names(value)}


def test_each_run_of_the_default_study_reaches_the_steady_state() -> None:
    config = load_config(yaml.safe_load(CONFIGS[0].read_text(encoding="utf-8")))
    written = [cell for cell in expand(config) if not cell.is_baseline]
    assert written
    for cell in written:
        steps_per_epoch = config.training.steps_per_epoch
        assert steps_per_epoch is not None
        checkpoints = cell.epochs * steps_per_epoch // cell.interval.steps(steps_per_epoch)
        assert checkpoints >= config.checkpoints.keep_during_run + 1 + 3


def test_the_code_of_another_clone_is_refused_unless_it_is_the_same(tmp_path: Path) -> None:
    check_source(tmp_path)  # no clone
    source = shutil.copytree(ROOT / "src", tmp_path / "src")
    check_source(tmp_path)
    (source / "ckptbench/common/errors.py").write_text("# edited\n")
    with pytest.raises(ConfigError, match=r"differs from that in .*: make \.venv in this clone"):
        check_source(tmp_path)

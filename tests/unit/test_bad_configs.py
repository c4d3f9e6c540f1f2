"""Wrong configs: each is refused before anything runs, in one line with file, field, value and remedy."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from bad_configs.combinations import COMBINATIONS
from bad_configs.remedies import ALIAS, COUNT, INTERVAL, KEEP_ONE, Bad
from bad_configs.structure import STRUCTURE
from bad_configs.unreadable import UNREADABLE
from bad_configs.values import VALUES
from snakemake.common.configfile import load_configfile
from snakemake.exceptions import WorkflowError
from snakemake.utils import update_config

from ckptbench.errors import ConfigError
from ckptbench.matrix.cell import Cell
from ckptbench.settings import sources
from ckptbench.study.config import StudyConfig, load_config, schema
from ckptbench.study.expansion import expand
from ckptbench.study.planning import plan_study

BAD = [*VALUES, *STRUCTURE, *COMBINATIONS]
GOOD = "matrix: {framework: pytorch, model: small_cnn, ranks: 1, interval: [never, 1]}\n"
README = (Path(__file__).resolve().parents[2] / "config" / "README.md").read_text(encoding="utf-8")
CIFAR10 = "matrix: {dataset: cifar10}\ndatasets: {cifar10: {archive: /no/such/file}}\n"

Plan = Callable[..., tuple[StudyConfig, list[Cell]]]


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Plans the study of config files with these texts, read and merged by Snakemake's own functions.

    They are `config.yaml`, and `study.yaml` if there are two, in the working folder.
    """
    monkeypatch.chdir(tmp_path)

    def planned(
        *texts: str, command_line: Mapping[str, Any] | None = None
    ) -> tuple[StudyConfig, list[Cell]]:
        content: dict[str, Any] = {}
        paths = [Path("config.yaml"), Path("study.yaml")][: len(texts)]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text, encoding="utf-8")
            update_config(content, load_configfile(path))
        update_config(content, command_line or {})
        return plan_study(content, paths, tmp_path / "datasets")

    return planned


def refusal(plan: Plan, *texts: str, **options: Any) -> str:
    """The one line that refuses the files."""
    with pytest.raises(ConfigError) as caught:
        plan(*texts, **options)
    line = str(caught.value)
    assert "\n" not in line
    return line


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.text[:60])
def test_a_bad_config_is_refused_in_one_line_with_file_field_value_and_remedy(
    plan: Plan, bad: Bad
) -> None:
    start = time.process_time()
    assert refusal(plan, bad.text) == f"config.yaml: {bad.field} is {bad.value}: {bad.remedy}"
    assert time.process_time() - start < 20, "what is too large must not be made first"


def test_there_are_many_bad_configs_and_each_once() -> None:
    assert len({bad.text for bad in BAD}) == len(BAD) >= 150


@pytest.mark.parametrize(("text", "fault"), UNREADABLE, ids=lambda text: text[:40])
def test_a_file_that_snakemake_cannot_read_is_explained_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    text: str, fault: str,
) -> None:  # fmt: skip
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises((WorkflowError, RecursionError, ValueError)) as caught:
        update_config({}, load_configfile(path))
    assert any(words in README for words in (str(caught.value), type(caught.value).__name__))
    monkeypatch.setattr(sys, "argv", ["sources", str(path)])
    assert sources.main() == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{path}: {fault}")


def test_the_check_of_files_is_a_command_and_says_nothing_of_good_ones(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(GOOD)
    bad.write_bytes(b"\xff")
    missing = tmp_path / "none.yaml"
    command = [sys.executable, "-m", "ckptbench.settings.sources", good, bad, missing]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.fullmatch(
        r".*bad\.yaml: cannot be read as text in UTF-8: .*\n.*none\.yaml: cannot be read: No such file or directory; correct the path.*\n",
        done.stdout,
    )


def test_the_file_with_a_key_twice_is_named_though_another_overrides_the_key(plan: Plan) -> None:
    line = refusal(plan, GOOD + "repeats: 1\nrepeats: 2\n", "repeats: 3\n")
    assert line == f"config.yaml: repeats is 1 (line 2) and then 2 (line 3): {KEEP_ONE}"


def test_a_key_that_a_merge_brings_may_be_set_again(plan: Plan) -> None:
    text = "include:\n  - &one {ranks: 2, epochs: 4}\n  - {<<: *one, ranks: 3}\n"
    _, cells = plan(GOOD, text)
    assert {cell.ranks for cell in cells} == {1, 2, 3}


def test_the_last_file_that_sets_a_value_is_named_even_for_nan(plan: Plan) -> None:
    bad = "training: {momentum: .nan}\n"
    remedy = "use a number from 0, below 1"
    assert refusal(plan, GOOD, bad) == f"study.yaml: training.momentum is nan: {remedy}"
    assert refusal(plan, GOOD + bad, "repeats: 1") == (
        f"config.yaml: training.momentum is nan: {remedy}"
    )
    assert refusal(plan, GOOD, "matrix: {yes: 1}").startswith("study.yaml: matrix.true is 1: ")


def test_a_wrong_value_of_the_command_line_is_its_own_and_text_in_brackets_is_explained(
    plan: Plan,
) -> None:
    assert refusal(plan, GOOD, command_line={"repeats": 0}) == (
        "--config: repeats is 0: use a whole number from 1"
    )
    assert refusal(plan, GOOD + "repeats: 0", "repeats: 1", command_line={"repeats": 0}) == (
        "--config: repeats is 0: use a whole number from 1"
    )
    assert refusal(plan, GOOD, command_line={"matrix": {"ranks": ["2"]}}) == (
        f"--config: matrix.ranks[0] is '2': {COUNT}; --config reads values in brackets as text: "
        "set them in a file, and name it with --configfile"
    )
    ring: list[Any] = []
    ring.append(ring)
    assert refusal(plan, GOOD, command_line={"exclude": ring}) == (
        f"--config: exclude[0] is an alias of what it lies in: {ALIAS}"
    )


def test_what_only_files_together_get_wrong_names_the_field_that_is_to_change(plan: Plan) -> None:
    line = refusal(
        plan, GOOD + "checkpoints: {keep_after_run: 2}", "checkpoints: {keep_during_run: 1}"
    )
    assert line.startswith("config.yaml: checkpoints.keep_after_run is 2: ")
    line = refusal(plan, GOOD, "matrix: {history: again, interval: 1}")
    assert line.startswith("config.yaml and study.yaml: training.proof is false: ")
    line = refusal(plan, GOOD, "matrix: {batch_size: 4096}")
    assert line == (
        "config.yaml and study.yaml: the cell pytorch-small_cnn-digits-r1-b4096-n3-never-rep0 cannot be: "
        "1 ranks with batch size 4096 need 4096 training samples a step, and the dataset has 1437: "
        "use a smaller batch size or fewer ranks"
    )


def test_a_template_is_not_taken_for_the_command_line(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SNAKEMAKE_ALLOW_YTE", "1")
    template = "__use_yte__: true\nrepeats: ?1 - 1\n"
    assert refusal(plan, GOOD, template) == ("study.yaml: repeats is 0: use a whole number from 1")


def test_many_wrong_values_are_counted(plan: Plan) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(f"matrix: {{interval: {[0] * 50}}}")
    lines = str(caught.value).splitlines()
    assert lines[0] == f"config.yaml: matrix.interval[0] is 0: {INTERVAL}"
    assert lines[20:] == ["and 30 more wrong values"]


def test_an_archive_that_is_named_must_be_there_though_its_dataset_is_made(
    plan: Plan, tmp_path: Path
) -> None:
    assert "there is no such file" in refusal(plan, GOOD, CIFAR10)
    plan(GOOD, "datasets: {cifar10: {archive: /no/such/file}}")  # no cell trains on it
    made = tmp_path / "datasets" / "cifar10" / "dataset.json"
    made.parent.mkdir(parents=True)
    made.write_text("{}")
    assert "there is no such file" in refusal(plan, GOOD, CIFAR10)


def test_the_files_of_nt3_are_looked_for_before_anything_runs(plan: Plan, tmp_path: Path) -> None:
    wanted = "matrix: {model: nt3, dataset: nt3}\n"
    study = f"{wanted}datasets: {{nt3: {{folder: {tmp_path}}}}}\n"
    (tmp_path / "nt_train2.csv").touch()
    assert "there is no such file nt_test2.csv in it" in refusal(plan, GOOD, study)
    (tmp_path / "nt_test2.csv").touch()
    plan(GOOD, study)
    made = tmp_path / "datasets" / "nt3" / "dataset.json"
    made.parent.mkdir(parents=True)
    made.write_text("{}")
    plan(GOOD, wanted)


def test_paths_may_begin_at_home(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "cifar.tar.gz").touch()
    text = "matrix: {dataset: cifar10}\ndatasets: {cifar10: {archive: ~/cifar.tar.gz}}\n"
    config, _ = plan(GOOD, text + "checkpoints: {folder: ~/ck}\n")
    assert config.datasets.cifar10.archive == str(tmp_path / "cifar.tar.gz")
    assert config.checkpoints.folder == str(tmp_path / "ck")


def test_the_largest_study_is_planned_in_seconds_and_its_names_fit_a_folder() -> None:
    largest = {
        "framework": "horovod_tensorflow", "model": "small_cnn", "dataset": "synthetic",
        "ranks": 1_000_000, "batch_size": 1, "epochs": 1_000_000, "format": "tf_checkpoint",
        "deterministic": True, "interval": ["never", *range(10**9 - 98, 10**9 + 1)],
    }  # fmt: skip
    made = {"synthetic": {"train_samples": 10**9}}
    start = time.process_time()
    cells = expand(load_config({"matrix": largest, "repeats": 100, "datasets": made}))
    assert time.process_time() - start < 20
    assert len(cells) == 10_000
    assert max(len(cell.id) for cell in cells) < 200


def test_the_schema_refuses_numbers_out_of_their_bounds() -> None:
    for wrong in (
        {"datasets": {"synthetic": {"height": 70000}}},
        {"training": {"momentum": 1}},
        {"training": {"learning_rate": 0}},
        {"limits": {"run_minutes": "5"}},
        {"checkpoints": {"folder": ""}},
        {"matrix": {"interval": 10**10}},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema())
    jsonschema.validate({"training": {"steps_per_epoch": None}}, schema())

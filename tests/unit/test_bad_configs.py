"""Wrong configs: each is refused before anything runs, in one line with file, field, value and remedy."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from snakemake.common.configfile import load_configfile
from snakemake.exceptions import WorkflowError
from snakemake.utils import update_config

from ckptbench.common.errors import ConfigError
from ckptbench.config import reading as sources
from ckptbench.config.expansion import expand
from ckptbench.config.planning import plan_study
from ckptbench.config.removed import REMOVED
from ckptbench.config.study import StudyConfig, load_config, schema
from ckptbench.matrix.cell import Cell

THOUSAND = list(range(1, 1001))
FIELDS = "use a mapping of fields"
LISTS = "config/README.md lists them all"
QUOTED = "; a number has no quotes, and YAML reads 1e-3 and 1.0e6 as text"
AT_LEAST_1 = "it should be greater than or equal to 1"
INTERVAL = 'use "never", a whole number of epochs from 1, or steps as in "50 steps"'
STRUCK = (
    "matrix: {framework: pytorch, model: small_cnn, ranks: 2, batch_size: 8, epochs: 2, interval: 1, faults: {listed: {name: late}}}\n"
    "training: {steps_per_epoch: 4}\nfailures: {late: [{step: %s, moment: %s, rank: 1}]}"
)
BAD = {
    # Numbers.
    "matrix: {ranks: 0}": f"matrix.ranks[0] is 0: {AT_LEAST_1}",
    "matrix: {ranks: [1, 2.0]}": "matrix.ranks[1] is 2.0: it should be a valid integer",
    'matrix: {ranks: "2"}': f"matrix.ranks[0] is '2': it should be a valid integer{QUOTED}",
    "matrix: {epochs: 10000000}": "matrix.epochs[0] is 10000000: it should be less than or equal to 1000000",
    "repeats: true": "repeats is true: it should be a valid integer",
    "training: {learning_rate: 1e-3}": f"training.learning_rate is '1e-3': it should be a valid number{QUOTED}",
    "training: {learning_rate: 0}": "training.learning_rate is 0: it should be greater than 0",
    "training: {momentum: 1}": "training.momentum is 1: it should be less than 1",
    "training: {momentum: .nan}": "training.momentum is nan: it should be a finite number",
    "training: {steps_per_epoch: none}": "training.steps_per_epoch is 'none': it should be a valid integer",
    "training: {steps_per_epoch: 0}": f"training.steps_per_epoch is 0: {AT_LEAST_1}",
    "datasets: {synthetic: {height: 70000}}": "datasets.synthetic.height is 70000: it should be less than or equal to 65536",
    "datasets: {synthetic: {height: 60000, width: 60000}}": "datasets.synthetic is {'height': 60000, 'width': 60000}: "
    "an image of height x width x channels = 10800000000 bytes is too large: use at most 268435456",
    "include: [{ranks: 0}]": f"include[0].ranks[0] is 0: {AT_LEAST_1}",
    "matrix: {interval: [never, -1]}": f"matrix.interval[1] is -1: {INTERVAL}",
    "matrix: {interval: 2 epochs}": f"matrix.interval[0] is '2 epochs': {INTERVAL}",
    # Names and options.
    "accelerator: tpu": "accelerator is 'tpu': it should be 'cpu' or 'cuda'",
    "matrix: {framework: [pytorch, torch]}": "matrix.framework[1] is 'torch': it should be 'chainer', 'pytorch', ",
    "matrix: {history: killed_thrice}": "matrix.history[0] is 'killed_thrice': it is one of faults: write faults: killed_thrice",
    "include: [{history: {exponential: {mean_s: 30}}}]": "include[0].history[0] is {'exponential': {'mean_s': 30}}: it is one of faults: write faults: exponential",
    "matrix: {history: killed}": "matrix.history[0] is 'killed': it should be 'whole' or 'rerun'",
    "matrix: {dataset: imagenet}": "matrix.dataset[0] is 'imagenet': it should be 'cifar10', 'digits', 'synthetic' or 'text'",
    "matrix: {strategy: deepfrozen}": "matrix.strategy[0] is 'deepfrozen': use native, sharded, async, ",
    "matrix: {strategy: {sharded: 3}}": "matrix.strategy[0] is {'sharded': 3}: use native, ",
    "matrix: {strategy: {native: {}, sharded: {}}}": "matrix.strategy[0] is {'native': {}, 'sharded': {}}: use native, ",
    "matrix: {strategy: {sharded: {levels: memory}}}": "matrix.strategy[0] is {'sharded': {'levels': 'memory'}}: "
    "strategy sharded has no option 'levels': it takes none",
    "matrix: {strategy: {dcp_async: {checkpointer: fork}}}": "matrix.strategy[0] is {'dcp_async': {'checkpointer': 'fork'}}: "
    "strategy dcp_async: checkpointer is 'fork', use thread or process",
    "matrix: {recovery: {ulfm: {replace: 1}}}": "matrix.recovery[0] is {'ulfm': {'replace': 1}}: recovery ulfm: replace is 1, use true or false",
    "matrix: {strategy: {deepfreeze: {memory: never}}}": "matrix.strategy[0] is {'deepfreeze': {'memory': 'never'}}: "
    "strategy deepfreeze: memory is 'never', use a whole number from 0 to 1000000000",
    "matrix: {strategy: {deepfreeze: {memory: true}}}": "matrix.strategy[0] is {'deepfreeze': {'memory': True}}: "
    "strategy deepfreeze: memory is true, use a whole number from 0 to 1000000000",
    "matrix: {faults: {exponential: {mean_s: 1e6}}}": "matrix.faults[0] is {'exponential': {'mean_s': '1e6'}}: "
    f"faults exponential: mean_s is '1e6', use a number above 0, up to 1000000000{QUOTED}",
    # What the last version had.
    "own: {command: train}": "own is {'command': 'train'}: own was removed after version 0.1: use `ckptbench-probe compare`",
    "matrix: {model: [gpt_baby, llama_debug]}": "matrix.model[1] is 'llama_debug': llama_debug was removed after version 0.1: use gpt_baby",
    "failures: {disk: [{step: 1, rank: 0, kind: full_disk}]}": "failures.disk[0].kind is 'full_disk': full_disk was removed after version 0.1: use kill",
    "matrix: {faults: {exponential: {kind: slow}}}": "matrix.faults[0] is {'exponential': {'kind': 'slow'}}: slow was removed after version 0.1: use kill, hang or damage",
    "decision: {replacement_minutes: 5}": "decision.replacement_minutes is 5: replacement_minutes was removed after version 0.1: leave it out",
    "matrix: {dataset: nt3}": "matrix.dataset[0] is 'nt3': nt3 was removed after version 0.1: use synthetic",
    "datasets: {nt3: {folder: /tmp}}": "datasets.nt3 is {'folder': '/tmp'}: nt3 was removed after version 0.1: leave it out",
    "matrix: {strategy: {deepfreeze: {memory: 1, partner: 0}}}": "matrix.strategy[0] is {'deepfreeze': {'memory': 1, 'partner': 0}}: partner was removed after version 0.1: leave it out",
    "matrix: {strategy: {dcp_async: {stager: fresh}}}": "matrix.strategy[0] is {'dcp_async': {'stager': 'fresh'}}: stager was removed after version 0.1: leave it out",
    "matrix: {strategy: [native, {orbax: {compression: true}}]}": "matrix.strategy[1] is {'orbax': {'compression': True}}: compression was removed after version 0.1: leave it out",
    "matrix: {history: [whole, again]}": "matrix.history[1] is 'again': again was removed after version 0.1: use rerun, its new name",
    "include: [{history: again}]": "include[0].history[0] is 'again': again was removed after version 0.1: use rerun, its new name",
    "matrix: {recovery: horovod_elastic}": "matrix.recovery[0] is 'horovod_elastic': horovod_elastic was removed after version 0.1: use restart",
    "include: [{recovery: {horovod_elastic: {}}}]": "include[0].recovery[0] is {'horovod_elastic': {}}: horovod_elastic was removed after",
    # Environments that are there.
    "environments: {torch: present}": "environments.torch is 'present': it should be 'data', 'chainer', 'pytorch', ",
    "environments: {pytorch: there}": "environments.pytorch is 'there': use present, {python: PATH} or {command: PROGRAM ARGUMENTS}",
    "environments: {pytorch: {python: a, command: b}}": "environments.pytorch is {'python': 'a', 'command': 'b'}: use present, ",
    # Flags, lists, texts.
    'resume: "yes"': "resume is 'yes': use true or false",
    "matrix: {ranks: []}": "matrix.ranks is []: give at least one value",
    "checkpoints: {folder: ''}": "checkpoints.folder is '': it should have at least 1 character",
    'checkpoints: {folder: "/tmp/\\0x"}': r"checkpoints.folder is '/tmp/\x00x': no path can hold the character U+0000: remove it",
    'decision: {numbers: "\\0"}': r"decision.numbers is '\x00': no path can hold",
    "checkpoints: {folder: 3}": "checkpoints.folder is 3: it should be a valid string",
    "failures: {a-b: [{step: 1, rank: 0}]}": "failures.'a-b' is [{'step': 1, 'rank': 0}]: it should match pattern",
    "failures: {one: []}": "failures.one is []: give at least one value",
    "failures: {one: [{step: 1}]}": "failures.one[0] is {'step': 1}: a failure hits a rank or a node: name one of them",
    # Files.
    "matrix: {dataset: cifar10}\ndatasets: {cifar10: {archive: /no/such}}": "datasets.cifar10.archive is '/no/such': "
    "there is no such file /no/such: give the path of the official cifar-10-python.tar.gz, or null to download it",
    "decision: {numbers: /no}": "decision.numbers is '/no': there is no such file /no: give the path of a file like",
    # Sections and keys.
    "matrix:": f"matrix is null: {FIELDS}",
    "datasets: {synthetic: 64}": f"datasets.synthetic is 64: {FIELDS}",
    "exclude: {ranks: 2}": "exclude is {'ranks': 2}: use a list, each entry a mapping of fields",
    "exclude: [pytorch]": f"exclude[0] is 'pytorch': {FIELDS}",
    "matrix: {rank: 2}": f"matrix.rank is 2: there is no such field; did you mean ranks? {LISTS}",
    "ranks: 2": f"ranks is 2: there is no such field; did you mean matrix.ranks? {LISTS}",
    "datasets: {synthetic: {hight: 2}}": f"datasets.synthetic.hight is 2: there is no such field; did you mean height? {LISTS}",
    "colour: red": f"colour is 'red': there is no such field; {LISTS}",
    "matrix: {on: 1}": "matrix[1] is 1: it is not a field name: YAML reads yes, no, on, off and numbers as values",
    # Values that do not go together.
    "checkpoints: {keep_after_run: 3}": "checkpoints is {'keep_after_run': 3}: "
    "keep_after_run is 3, and no more are there than keep_during_run, which is 2",
    "checkpoints: {memory_folder: near}": "checkpoints.memory_folder is 'near': write the whole path",
    "matrix: {framework: pytorch, epochs: 2, interval: [never, 4]}\ntraining: {steps_per_epoch: 5, warmup_steps: 2}": "matrix.interval is ['never', 4]: "
    "the run pytorch-resnet50-digits-r1-b32-n2-torch_save-e4-rep0 has 10 steps in all, and ends before its first checkpoint: use a shorter one, or train longer",
    "matrix: {framework: pytorch, epochs: 2}\ntraining: {steps_per_epoch: 5, warmup_steps: 10}": "training.warmup_steps is 10: "
    "the run pytorch-resnet50-digits-r1-b32-n2-never-rep0 has 10 steps in all, and none is left to time",
    "exclude: [{ranks: 64}]": "exclude[0] is {'ranks': 64}: no cell matches it (a strategy matches with all its options): correct",
    "matrix: {framework: pytorch, strategy: [{deepfreeze: {memory: 1, shared: 4}}, native]}\nexclude: [{strategy: deepfreeze}]":
    "exclude[0] is {'strategy': 'deepfreeze'}: no cell matches it (a strategy matches with all its options): "
    "correct or remove it",
    "exclude: [{}]": "exclude is [{}]: the matrix is empty: exclude drops every cell; drop fewer",
    "matrix: {framework: pytorch, ranks: 2, faults: [none, {listed: {name: one}}]}\nfailures: {one: [{step: 1, rank: 2}]}":
    "matrix.faults[1] is {'listed': {'name': 'one'}}: no cell of the matrix allows it: failures.one is for rank 2, but a run",
    STRUCK % (8, "step"): "failures.late[0].step is 8: it would never occur: the run pytorch-small_cnn-digits-r2-b8-n2-",
    STRUCK % (9, "save"): "failures.late[0].step is 9: it would never occur: the run pytorch-small_cnn-digits-r2-b8-n2-",
    "matrix: {framework: pytorch, faults: {listed: {name: two}}}\nfailures: {one: [{step: 1, rank: 0}]}": "the matrix is empty: "
    "listed needs the name of a list under failures (one)",
    "matrix: {history: rerun, faults: exponential, interval: 1}": "the matrix is empty: faults exponential with history rerun",
    "matrix: {framework: pytorch, faults: listed}": "the matrix is empty: listed needs the name of a list under failures (it has none)",
    "matrix: {framework: pytorch, format: [hdf5, npz]}": "matrix.format[1] is 'npz': no cell of the matrix allows it: pytorch does not write npz: "
    "use torch_save, safetensors, hdf5",
    "include: [{framework: tensorflow, format: npz, interval: 1}]": "include[0] is {'framework': 'tensorflow', 'format': 'npz', "
    "'interval': 1}: tensorflow does not write npz: use hdf5, keras, tf_checkpoint",
    "matrix: {interval: never}\ninclude: [{format: hdf5}]": "include[0] is {'format': 'hdf5'}: it names a format and no interval",
    "matrix: {interval: 1, history: rerun}": "training.proof is false: ",
    "matrix: {framework: pytorch, interval: never, strategy: [native, async]}": "matrix.strategy[1] is 'async': no cell of the matrix "
    "allows it: its runs equal those of other values, as none of them saves: add an interval other than never",
    # Too many.
    "matrix: {framework: pytorch}\nrepeats: 2501": "repeats is 2501: the study has 10,004 cells (4 a repeat), and at most 10,000 are allowed",
    f"matrix: {{framework: pytorch, ranks: {THOUSAND}, batch_size: {THOUSAND}}}": f"matrix is {{'framework': 'pytorch', 'ranks': "
    f"{str(THOUSAND)[:40]}... its lists give 2,000,000 combinations",
}  # fmt: skip
"""Text of a config file: how the line that refuses it begins."""
UNREADABLE = {
    "matrix: {ranks: 1": "line 1, column 18: not YAML: while parsing a flow mapping, expected ',' or '}'",
    "repeats: 3\n  seed: 1": "line 2, column 7: not YAML: mapping values are not allowed here",
    "ranks: *none": "line 1, column 8: not YAML: found undefined alias 'none'",
    "a: !mine 1": "line 1, column 4: not YAML: could not determine a constructor for the tag '!mine'",
    "a: 2020-13-45": "cannot be read as YAML: month must be in 1..12",
    "": "the file is empty or no mapping: give it fields",
    "- repeats: 3": "the file is empty or no mapping: give it fields",
    "a: " + "[" * 3000: "cannot be read as YAML: maximum recursion depth exceeded",
}
"""Files that Snakemake does not read, and how the line of `python -m ckptbench.config.reading` goes on."""
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

    def planned(*texts: str) -> tuple[StudyConfig, list[Cell]]:
        content: dict[str, Any] = {}
        paths = [Path("config.yaml"), Path("study.yaml")][: len(texts)]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text, encoding="utf-8")
            update_config(content, load_configfile(path))
        return plan_study(content, paths, tmp_path / "datasets")

    return planned


def refusal(plan: Plan, *texts: str) -> str:
    """The one line that refuses the files."""
    with pytest.raises(ConfigError) as caught:
        plan(*texts)
    line = str(caught.value)
    assert "\n" not in line
    return line


@pytest.mark.parametrize("text", BAD, ids=lambda text: text[:60])
def test_a_bad_config_is_refused_in_one_line_with_file_field_value_and_remedy(
    plan: Plan, text: str
) -> None:
    start = time.process_time()
    begin, _, end = f"config.yaml: {BAD[text]}".partition("... ")
    line = refusal(plan, text)
    assert line.startswith(begin)
    assert end in line
    assert time.process_time() - start < 20, "what is too large must not be made first"


@pytest.mark.parametrize("remedy", [each for some in REMOVED.values() for each in some.values()])
def test_the_line_on_what_was_removed_says_one_thing_to_do(remedy: str) -> None:
    assert re.match("(use|leave it out)( |;|$)", remedy)
    assert not re.search(": |remove", remedy)


@pytest.mark.parametrize(("text", "fault"), UNREADABLE.items(), ids=lambda text: text[:40])
def test_a_file_that_snakemake_cannot_read_is_explained_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    text: str, fault: str,
) -> None:  # fmt: skip
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises((WorkflowError, RecursionError, ValueError)) as caught:
        update_config({}, load_configfile(path))
    begin = str(caught.value).partition(".")[0]
    assert any(words in README for words in (begin, type(caught.value).__name__))
    monkeypatch.setattr(sys, "argv", ["sources", str(path)])
    assert sources.main() == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{path}: {fault}")


def test_the_check_of_files_is_a_command_and_says_nothing_of_good_ones(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(GOOD)
    bad.write_bytes(b"\xff")
    missing = tmp_path / "none.yaml"
    command = [sys.executable, "-m", "ckptbench.config.reading", good, bad, missing]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.fullmatch(
        r".*bad\.yaml: cannot be read as text in UTF-8: .*\n.*none\.yaml: cannot be read: No such file or directory; correct the path.*\n",
        done.stdout,
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("resume: true\nrepeats: 1\nrepeats: 2\n", "line 3: repeats is set twice, first in line 2"),
        ("exclude:\n  - {ranks: 1, ranks: 2}\n", "line 2: ranks is set twice, first in line 2"),
    ],
)
def test_the_file_with_a_key_twice_is_named_though_another_overrides_the_key(
    plan: Plan, text: str, line: str
) -> None:
    assert refusal(plan, text, GOOD) == f"config.yaml: {line}: keep one of the two"


def test_a_section_may_be_empty(plan: Plan) -> None:
    text = "matrix: {strategy: {dcp_async: {}}}\ntraining: {}\ndatasets: {synthetic: {}}\nfailures: {}\n"
    assert len(plan(GOOD, text)[1]) == 6
    assert "there is no such field" in refusal(plan, GOOD, "colour: {}")


def test_a_key_that_a_merge_brings_may_be_set_again(plan: Plan) -> None:
    text = "include:\n  - &one {ranks: 2, epochs: 4}\n  - {<<: *one, ranks: 3}\n"
    _, cells = plan(GOOD, text)
    assert {cell.ranks for cell in cells} == {1, 2, 3}


def test_a_wrong_value_of_several_files_is_shown_as_it_is_merged(plan: Plan) -> None:
    assert refusal(plan, GOOD + "repeats: 0", "repeats: true") == (
        "config.yaml and study.yaml: repeats is true: it should be a valid integer"
    )
    line = refusal(plan, GOOD + "exclude: [{ranks: 64}]", "repeats: 1")
    assert line.startswith("config.yaml and study.yaml: exclude[0] is {'ranks': 64}: no cell")


def test_a_number_in_quotes_may_come_of_the_command_line(plan: Plan) -> None:
    line = refusal(plan, 'matrix: {ranks: ["2"]}')
    assert line.endswith("; --config reads values in brackets as text: set them in a file")


def test_what_only_files_together_get_wrong_names_the_field_that_is_to_change(plan: Plan) -> None:
    line = refusal(
        plan, GOOD + "checkpoints: {keep_after_run: 2}", "checkpoints: {keep_during_run: 1}"
    )
    assert "keep_after_run is 2, and no more are there than keep_during_run, which is 1" in line
    line = refusal(plan, GOOD, "matrix: {history: rerun, interval: 1}")
    assert line.startswith("config.yaml and study.yaml: training.proof is false: ")
    line = refusal(plan, GOOD, "matrix: {batch_size: 4096}")
    assert line == (
        "config.yaml and study.yaml: the cell pytorch-small_cnn-digits-r1-b4096-n3-never-rep0 cannot be: "
        "1 ranks with batch size 4096 need 4096 training samples a step, and the dataset has 1437: "
        "use a smaller batch size or fewer ranks"
    )


def test_many_wrong_values_are_counted(plan: Plan) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(f"matrix: {{interval: {[0] * 50}}}")
    lines = str(caught.value).splitlines()
    assert lines[0].startswith(f"config.yaml: matrix.interval[0] is 0: {INTERVAL}")
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


def test_paths_may_begin_at_home(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "cifar.tar.gz").touch()
    text = "matrix: {dataset: cifar10}\ndatasets: {cifar10: {archive: ~/cifar.tar.gz}}\n"
    config, _ = plan(GOOD, text + "checkpoints: {folder: ~/ck}\n")
    assert config.checkpoints.folder == str(tmp_path / "ck")


def test_the_largest_study_is_planned_in_seconds_and_its_names_fit_a_folder() -> None:
    largest = {
        "framework": "horovod_tensorflow", "model": "small_cnn", "dataset": "synthetic",
        "ranks": 1_000_000, "batch_size": 1, "epochs": 1_000_000, "format": "tf_checkpoint",
        "deterministic": True, "interval": ["never", *(f"{steps} steps" for steps in range(10**9 - 99, 10**9))],
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

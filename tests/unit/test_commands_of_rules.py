"""The clone may lie in a folder with any name: rules run its Python, and no other. Every rule says what it makes."""

from __future__ import annotations

import os
import re
import string
import subprocess
import sys
from pathlib import Path

import pytest
from snakemake.io import apply_wildcards
from snakemake.shell import shell

from ckptbench.common.errors import ConfigError
from ckptbench.common.foreign import VARIABLES
from ckptbench.config.commands import check_input, shell_prefix
from ckptbench.workflow.__main__ import VERBS

ROOT = Path(__file__).resolve().parents[2]
PRINTABLE = sorted({*string.printable} - {*string.whitespace} - {*"/:"})
NAMES = [*(f"a{each}b" for each in PRINTABLE), "{x}", "{{x}}", "a b", "a\nb", "a\tb", "学習", "-n", "%j", "$HOME", "'$(id)'"]  # fmt: skip


def test_rules_run_the_python_beside_snakemake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "_process_prefix", None)
    for name in NAMES:
        python = tmp_path / name / "python"
        python.parent.mkdir()
        python.write_text("#!/bin/sh\necho here\n")
        python.chmod(0o755)
        shell.prefix(shell_prefix(python, 7))
        command = f'{shell._process_prefix} python && echo "$WORKFLOW"'
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
        assert done.stdout == "here\n7\n", name


FOREIGN = dict.fromkeys(VARIABLES, "/site")


def test_rules_have_no_variable_that_a_site_sets_for_another_python(tmp_path: Path) -> None:
    prefix = shell_prefix(Path(sys.executable), 7).format()
    code = "import numpy, os, sys; print(sys.flags.no_user_site, *(set(sys.argv[1:]) & set(os.environ)))"
    done = subprocess.run(
        ["bash", "-c", f'{prefix} exec python -c "$0" "$@"', code, *FOREIGN],
        env={**os.environ, **FOREIGN, "PYTHONPATH": str(foreign(tmp_path))},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split()[1:] == []


def foreign(folder: Path) -> Path:
    """Packages of another Python, as a site's modules have them on PYTHONPATH."""
    for name in ("numpy", "pandas", "scipy", "matplotlib", "pyarrow"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(
            "raise ImportError('compiled for\\nanother Python')\n"
        )
    return folder


def test_commands_take_their_own_packages_though_a_site_names_others(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(foreign(tmp_path))}
    with pytest.raises(subprocess.CalledProcessError):
        subprocess.run(
            [sys.executable, "-c", "import numpy"], env=environment, check=True, capture_output=True
        )
    commands = {
        "ckptbench": ["decide", "--gpus", "256", "--mtbf", "14h", "--step", "2.5s", "--blocking", "60s", "--restart", "8min", "--now", "2h"],
        "snakemake": ["--profile", "local", "--list"],
        "ckptbench-probe": ["--version"],
    }  # fmt: skip
    for name, options in commands.items():
        command = [Path(sys.executable).parent / name, *options]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_make_hands_on_no_such_variable(tmp_path: Path) -> None:
    rules = tmp_path / "Makefile"
    rules.write_text(f"include {ROOT}/Makefile\nshown:\n\t@env\n")
    done = subprocess.run(["make", "-f", rules, "shown"], env={**os.environ, **FOREIGN}, cwd=ROOT, capture_output=True, text=True, check=True)  # fmt: skip
    shown = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert {name: shown[name] for name in VARIABLES if name in shown} == {"PIP_USER": "0"}


def test_a_folder_that_no_path_can_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="'/data/a:b/bin': a : ends"):
        shell_prefix(Path("/data/a:b/bin/python"), 7)


@pytest.mark.parametrize("path", ["/x/{a}.yaml", "{b,[0-9]+}/x", "/x/{ c }", "/<results>/x"])
def test_a_path_that_snakemake_reads_as_a_pattern_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match=r"decision\.numbers is ") as refused:
        check_input(path, "decision.numbers")
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    "path", ["/x/{}", "{-}", "a}b", "a b", "$x", "100%", "学習", "a<-b", "'\"\\"]
)
def test_other_paths_are_taken_as_they_are(path: str) -> None:
    check_input(path, "decision.numbers")
    assert apply_wildcards(path, {}) == path


def test_no_command_takes_the_path_of_a_user_for_an_option() -> None:
    """`--name -n` is an error of every parser, `--name=-n` is not. JSON begins with a brace."""
    is_json = {"cell", "choices", "environment", "settings", "training"}
    for path in sorted((ROOT / "workflow" / "rules").glob("*.smk")):
        text = path.read_text("utf-8")
        apart = re.findall(r"--[a-z-]+ \{(?:params\.)?(\w+):q\}|--[a-z-]+ \{shlex", text)
        assert set(apart) <= is_json, path.name


def test_the_list_of_rules_says_what_each_makes() -> None:
    command = [sys.executable, "-m", "snakemake", "--profile", "local", "--list"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    described = re.findall(r"^(\w+)(?: \((\S.*\.)\))?$", listed, re.MULTILINE)
    assert {"all", "decision", "draw_overhead", "train_cell"} <= {name for name, _ in described}
    assert not [name for name, words in described if not words]


def test_each_run_gets_what_is_its_own_and_what_all_have_in_common(tmp_path: Path) -> None:
    for name in ("config", "envs", "src", "workflow"):
        (tmp_path / name).symlink_to(ROOT / name)
    config = tmp_path / "study.yaml"
    config.write_text(
        "matrix: {framework: [chainer, pytorch], model: small_cnn, ranks: 2, interval: never}\nrepeats: 1\n"
        'checkpoints: {folder: "/x/{cell}"}\n'
    )
    command = [sys.executable, "-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--cores", "1"]
    options = ["runs", "-n", "-p", "--configfile", config]
    done = subprocess.run(
        [*command, *options], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    lines = [line for line in done.stdout.splitlines() if " train-cell --cell " in line]
    assert len(lines) == 2
    for line in lines:
        framework = re.findall(r'"framework": "(\w+)"', line)[0]
        assert f"envs/{framework}.txt" in line
        assert f".environments/{framework}/ready.json" in line
        assert "--checkpoints='/x/{cell}'" in line


def test_rules_run_verbs_and_nothing_that_lies_in_the_working_folder(tmp_path: Path) -> None:
    """Which is that of a user, or of another workflow."""
    rules = "".join(path.read_text("utf-8") for path in ROOT.glob("workflow/rules/*.smk"))
    called = re.findall(r"python -P -m ckptbench\.workflow ([a-z-]+)", rules)
    assert {*called} == {*VERBS} - {"write-published"}
    assert rules.count("python -") == len(called)
    for name in ("argparse", "ckptbench", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not this one')\n")
    prefix = shell_prefix(Path(sys.executable), 7).format()
    command = ["bash", "-c", f"{prefix} python -P -m ckptbench.workflow decide --help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: python -m ckptbench.workflow decide ")


def test_only_trainings_and_checks_of_trainers_are_jobs_of_a_scheduler() -> None:
    for path in sorted((ROOT / "workflow" / "rules").glob("*.smk")):
        named = re.split(r"^ *rule ?(\w*):$", path.read_text("utf-8"), flags=re.MULTILINE)[1:]
        for name, body in zip(named[::2], named[1::2], strict=True):
            if re.search(r"^ *shell:$", body, re.MULTILINE):
                is_local = re.search(r"^ *localrule: True$", body, re.MULTILINE) is not None
                assert is_local is (name not in ("train_cell", "check_trainer")), (
                    f"{path.name}: {name}"
                )

"""Files of a stranger: what Snakemake says to them, and that nothing in them runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

TEMPLATE = """
__use_yte__: {flag}
__definitions__:
  - open("ran", "w").write("code")
value: ?1 + 1
"""
SNAKEFILE = """
{configfile}
print("value is", config.get("value"))
rule all:
    output: "never"
    shell: "touch never"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SNAKEMAKE_ALLOW_YTE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "theirs.yaml").write_text(TEMPLATE.format(flag="true"))
    (tmp_path / "mine").mkdir()
    return tmp_path


def dry_run(
    *options: str, configfile: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    Path("Snakefile").write_text(SNAKEFILE.format(configfile=configfile))
    return subprocess.run(
        [sys.executable, "-m", "snakemake", "--dry-run", *options], env={**os.environ, **variables},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip


def refusal(name: str) -> str:
    return (
        f"{name}: the key __use_yte__ has Snakemake run the Python code in this file, even in a dry run: remove the "
        "key, or, if you trust the whole file, set SNAKEMAKE_ALLOW_YTE=1\n"
    )


def test_a_config_file_of_the_command_line_is_refused_in_one_line() -> None:
    done = dry_run("--configfile", "theirs.yaml")
    assert done.returncode == 1
    assert done.stdout.endswith(f"Error: {refusal('theirs.yaml')}")
    assert not Path("ran").exists()


def test_so_is_the_one_that_the_snakefile_names() -> None:
    done = dry_run(configfile='configfile: "theirs.yaml"')
    assert done.returncode == 1
    assert f'Snakefile", line 2:\n{refusal("theirs.yaml")}' in done.stdout
    assert not Path("ran").exists()


def test_so_is_the_one_that_a_profile_names() -> None:
    Path("mine/config.yaml").write_text("configfile: [theirs.yaml]\n")
    done = dry_run("--profile", "mine")
    assert done.returncode == 1
    assert done.stdout.endswith(f"Error: {refusal('theirs.yaml')}")
    assert not Path("ran").exists()


@pytest.mark.parametrize("place", ["mine", "profiles/default"])
def test_so_is_a_profile(place: str) -> None:
    """Also one that Snakemake finds by itself."""
    Path(place).mkdir(parents=True, exist_ok=True)
    Path("theirs.yaml").rename(f"{place}/config.yaml")
    done = dry_run(*(["--profile", "mine"] if place == "mine" else []))
    assert done.returncode != 0
    assert done.stdout.endswith(refusal(f"{place}/config.yaml"))
    assert not Path("ran").exists()


def test_whoever_trusts_a_file_can_say_so() -> None:
    done = dry_run("--configfile", "theirs.yaml", SNAKEMAKE_ALLOW_YTE="1")
    assert done.returncode == 0, done.stdout
    assert "value is 2" in done.stdout
    assert Path("ran").exists()


def load(text: str) -> object:
    """What Snakemake reads from a config file with this text, in a process of its own."""
    Path("given.yaml").write_text(text)
    code = "from snakemake.common.configfile import load_configfile; print(load_configfile('given.yaml'))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )  # fmt: skip
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    "head",
    ["__use_yte__: yes", "'__use_yte__': 1", '"__use\\u005fyte__": on', "? __use_yte__\n: [no]",
     "a: &a {__use_yte__: true}\n<<: *a", "__use_yte__: false\n__use_yte__: true", "%YAML 1.1\n---\n__use_yte__: true"],
)  # fmt: skip
def test_the_key_is_found_however_it_is_written(head: str) -> None:
    rest = TEMPLATE.partition("\n__definitions__")[2]
    assert str(load(f"{head}\n__definitions__{rest}")).endswith(refusal("given.yaml").strip())
    assert not Path("ran").exists()


@pytest.mark.parametrize("flag", ["false", "null", "0"])
def test_a_file_that_does_not_want_to_be_a_template_is_none(flag: str) -> None:
    assert "'?1 + 1'" in str(load(TEMPLATE.format(flag=flag)))
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    "value",
    ['!!python/object/apply:os.system ["touch ran"]', '!!python/object/new:os.system ["touch ran"]',
     "!!python/object:os.system {}", "!!python/module:os"],
)  # fmt: skip
def test_tags_of_yaml_run_nothing(value: str) -> None:
    assert "not valid JSON or YAML" in str(load(f"value: {value}\n"))
    assert not Path("ran").exists()


def test_yte_is_as_it_was_for_whoever_calls_it() -> None:
    code = f"import yte; print(yte.process_yaml({TEMPLATE.format(flag='true')!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{'value': 2}"


def test_a_program_that_has_nothing_to_do_with_it_imports_next_to_nothing() -> None:
    code = "import sys; print(*sys.modules)"
    with_guard = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    modules = with_guard.stdout.split()
    assert "snakemake_config_guard" in modules
    assert not {"yte", "yaml", "snakemake", "typing"} & set(modules)


def make_nothing() -> None:
    """The file is missing."""


def make_link_to_nothing() -> None:
    Path("mine.yaml").symlink_to("nowhere")


def make_folder() -> None:
    Path("mine.yaml").mkdir()


def make_pipe() -> None:
    os.mkfifo("mine.yaml")


def make_picture() -> None:
    Path("mine.yaml").write_bytes(b"\x89PNG\r\n")


@pytest.mark.parametrize(
    "make", [make_nothing, make_link_to_nothing, make_folder, make_pipe, make_picture]
)
def test_a_config_file_that_cannot_be_read_is_refused_in_one_line(
    make: Callable[[], None],
) -> None:
    make()
    path = Path("mine.yaml").absolute()
    done = dry_run("--configfile", str(path))
    assert done.returncode == 1
    assert f"Error: {path}: the config file cannot be read: " in done.stdout
    assert "Traceback" not in done.stdout

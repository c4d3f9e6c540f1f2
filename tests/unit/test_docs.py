"""The pages that people write name what exists; the pages that are written from the source are up to date."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

import ckptbench
from ckptbench.cli.verbs import ckptbench as command
from ckptbench.cli.verbs import run
from ckptbench.config.study import (
    ListedFailure,
    Matrix,
    StudyConfig,
    TrainingSection,
)
from ckptbench.matrix.plugin_spec import Entry
from ckptbench.matrix.registry import RECOVERIES, STRATEGIES
from ckptbench.report.answer.published import FINDINGS, INTRODUCTION
from ckptbench.workflow.__main__ import VERBS
from ckptbench_probe import main as probe
from scripts.pages.settings import fields
from scripts.write_pages import PART, PARTS, files, filled

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted(ROOT.glob("*.md")),
    ROOT / "config" / "README.md",
]
FOLDERS = "src|tests|envs|docs|config|scripts|workflow|benchmarks|profiles|plugins"
PATH = re.compile(rf"(?<![\w/.~-])(?:{FOLDERS})/[\w./<>*-]*[\w/>*]")
TEXTS = (".py", ".sh", ".smk", ".md", ".yaml", ".toml", ".txt", ".in", ".js")
PLAIN = re.compile(r"\b(?:http|ftp)://(?!127\.0\.0\.1|\{LOOPBACK\}|localhost|www\.w3\.org/)\S+")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")
ANCHOR = re.compile(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)")
SOURCE_FILE = re.compile(r"`([\w/-]+\.(?:py|smk|rst))`")
TARGET = re.compile(r"`?make ([a-z-]+)`")
RUN = re.compile(r"^ckptbench \w+ --(?:.*\\\n)*.*$", re.MULTILINE)
SHOWN = re.compile(r"```bash\n(?:[^`]*\n)?(ckptbench [^`]*)\n```\n\n```text\n([^`]*)```")
"""A command of a page, and what it prints."""
PROBED = re.compile(
    r"^ {0,4}(ckptbench-probe (?:run|compare|check \w+) (?:.*\\\n)*.*)$", re.MULTILINE
)
INVENTED = re.compile(r"(?<![a-z])(mine|my)(?![a-z])|<\w+>")
"""In a path: it stands for a file that the reader adds."""


def test_the_program_that_starts_ranks_by_ssh_keeps_every_word(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```bash\n(#!/bin/bash\n[^`]*)```", page)
    # ssh hands one line to a shell of the other host.
    ssh = '#!/bin/sh\n[ "$1 $2 $3" = "-o BatchMode=yes node1" ] && shift 3 && exec sh -c "$*"\n'
    for name, text in (("pbs_tmrsh", program), ("ssh", ssh)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    words = ["printf", "%s\\n", "A=a b", "it's", "$HOME", "", '"']
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    said = subprocess.run([str(tmp_path / "pbs_tmrsh"), "node1", *words], env=path, capture_output=True, text=True, check=True)  # fmt: skip
    assert said.stdout.splitlines() == words[2:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_on_a_page_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = {found for found in PATH.findall(text) if not found.startswith("docs/images")}
    missing = [path for path in named if not exists(path)]
    missing += [path for path in LINK.findall(text) if not (page.parent / path).exists()]
    assert not missing


def test_pages_of_the_plugins_are_read_elsewhere_too() -> None:
    """An index of packages, and the catalog of Snakemake's plugins, show them without the files beside them."""
    plugin = ROOT / "plugins" / "snakemake-executor-plugin-submitit"
    pages = [*(ROOT / "plugins").glob("*/README.md"), plugin / "docs/intro.md", plugin / "docs/further.md"]  # fmt: skip
    assert {str(page): LINK.findall(page.read_text(encoding="utf-8")) for page in pages} == {
        str(page): [] for page in pages
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_heading_that_a_link_names_exists(page: Path) -> None:
    for path, anchor in ANCHOR.findall(page.read_text(encoding="utf-8")):
        linked = page.parent / path if path else page
        assert anchor in headings(linked.read_text(encoding="utf-8")), f"{path}#{anchor}"


def headings(text: str) -> set[str]:
    """The names by which links reach a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("folder", ["src", "scripts", "config", "docs", "envs", "workflow", "."])
def test_nothing_is_fetched_from_a_place_whose_answers_could_be_changed_on_the_way(
    folder: str,
) -> None:
    """Every address is one of HTTPS, or of this machine itself."""
    files = (ROOT / folder).glob("*" if folder == "." else "**/*")
    texts = [
        path for path in files if path.suffix in TEXTS or path.name in ("Makefile", "Snakefile")
    ]
    assert texts
    plain = {path: PLAIN.findall(path.read_text(encoding="utf-8")) for path in texts}
    assert not {path: found for path, found in plain.items() if found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_file_of_the_source_is_named_by_its_whole_path(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not [path for path in SOURCE_FILE.findall(text) if not exists(path)]


def exists(path: str) -> bool:
    """Of a path that stands for a file of the reader's, the folder that it goes to."""
    if INVENTED.search(path):
        path = path[: INVENTED.search(path).start()].rpartition("/")[0]  # type: ignore[union-attr]
    return any(ROOT.glob(path.rstrip("/")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_make_target_on_a_page_exists(page: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(TARGET.findall(page.read_text(encoding="utf-8"))) <= set(targets)


def test_what_follows_from_the_source_is_up_to_date() -> None:
    stale = [path for path, text in files().items() if path.read_text(encoding="utf-8") != text]
    assert not stale, "run `make generated` and commit the result"


def test_a_part_is_written_in_place_of_what_stood_there() -> None:
    page = "Before.\n<!--generated:faults-->\nold\n<!--end-->\nAfter.\n"
    expected = f"Before.\n<!--generated:faults-->\n{PARTS['faults']()}<!--end-->\nAfter.\n"
    assert filled(page) == expected


def test_every_generated_part_is_on_one_page() -> None:
    placed = [part for page in PAGES for _, part in PART.findall(page.read_text(encoding="utf-8"))]
    assert sorted(placed) == sorted(PARTS)


def test_the_page_on_findings_has_each_claim_and_its_test() -> None:
    page = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    assert INTRODUCTION in page
    for each in FINDINGS:
        assert f"**{each.claim}**\n\n- Test: {each.tested} (`{each.study}`)." in page


def test_the_glossary_is_in_order_and_short() -> None:
    page = (ROOT / "docs" / "names.md").read_text(encoding="utf-8")
    words = re.findall(r"^- \*\*([\w -]+)\*\*: ", page, re.MULTILINE)
    assert words == sorted(words)
    assert 30 <= len(words) <= 40


def test_a_line_of_a_field_says_what_it_takes_and_its_default() -> None:
    lines = fields(StudyConfig) + fields(Matrix) + fields(TrainingSection) + fields(ListedFailure)
    assert "- `accelerator` (`cpu`, `cuda`; default `cpu`): " in lines
    assert "- `interval` (default `[never, 1]`): " in lines
    assert "- `strategy` (default `[native]`): " in lines
    assert "- `momentum` (number below 1; default `0.9`): " in lines
    assert "- `rank` (integer; optional): " in lines
    assert "- `steps_per_epoch` (integer from 1): " in lines, "its description says: Without"
    assert "- `lasts_s` (number above 0; default `5`): " in lines


def test_the_version_is_that_of_the_newest_release_and_of_the_citation() -> None:
    releases = re.findall(
        r"^## \[([\d.]+)\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert ckptbench.__version__ == releases[0] == citation["version"]


@pytest.mark.parametrize("page", ["README.md", "docs/save-steps.md"])
def test_a_page_shows_what_the_command_prints(
    page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = SHOWN.findall((ROOT / page).read_text(encoding="utf-8"))
    assert shown
    for words, output in shown:
        assert run(shlex.split(words)[1:]) == 0
        assert capsys.readouterr().out == output


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_option_of_the_command_on_a_page_exists(page: Path) -> None:
    for words in RUN.findall(page.read_text(encoding="utf-8")):
        verb, *rest = shlex.split(words)[1:]
        known = {name for each in command.commands[verb].params for name in each.opts} | {"--help"}
        assert {word for word in rest if word.startswith("--")} <= known


@pytest.mark.parametrize("page", [*PAGES, ROOT / "probe" / "README.md"], ids=lambda page: str(page.relative_to(ROOT)))  # fmt: skip
def test_every_command_of_the_probe_on_a_page_is_one(page: Path) -> None:
    for words in PROBED.findall(page.read_text(encoding="utf-8")):
        command, _, trained = words.replace("\\\n", " ").partition(" -- ")
        options = probe.parser().parse_args([*shlex.split(command)[1:], "--", *trained.split()])
        assert options.verb in command


def test_the_screen_of_the_probe_on_a_page_is_that_of_today() -> None:
    """Its words are in the source; its numbers are of the run that the page names."""
    page = (ROOT / "docs" / "own-training.md").read_text(encoding="utf-8")
    source = "".join(path.read_text("utf-8") for path in (ROOT / "probe/src").rglob("*.py"))
    ends = re.findall(
        r"^    (?:stall|slowdown|finished|share) .*(?:\)|%):? (.*)$", page, re.MULTILINE
    )
    assert len(ends) == 4
    assert not [words for words in ends if words not in source]
    shown = re.findall(r"```text\n(checkpoints [^`]*)```", (ROOT / "README.md").read_text("utf-8"))
    assert all(f"\n    {line}\n" in page for line in shown[0].splitlines())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_run_of_snakemake_on_a_page_has_a_profile_and_every_verb_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    profiles = {path.name for path in (ROOT / "profiles").iterdir()}
    assert set(re.findall(r"^ *snakemake .*?--profile (\S+)", text, re.MULTILINE)) <= profiles  # fmt: skip
    assert set(re.findall(r"python -m ckptbench\.workflow ([a-z-]+)", text)) <= set(VERBS)


def test_the_forge_and_ci_run_the_test_command_of_the_readme() -> None:
    forge = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    assert [step["run"] for step in forge["jobs"]["test"]["steps"] if "run" in step][
        -1
    ] == ".ci/run"
    assert (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()[-1] == "make test"
    assert "`make test` runs everything that CI runs" in (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("name", "registry"), [("strategies", STRATEGIES), ("recoveries", RECOVERIES)]
)
def test_the_page_on_strategies_explains_every_option(
    name: str, registry: dict[str, Entry]
) -> None:
    page = (ROOT / "docs" / "strategies.md").read_text(encoding="utf-8")
    common = page.partition("## Recoveries")[2].partition("### ")[0] if name == "recoveries" else ""
    for each, entry in registry.items():
        shown = PARTS[name]().partition(f"### `{each}`\n\n")[2].partition("\n### ")[0]
        words = common + shown.partition("\n\n")[2]
        assert words.strip()
        assert not [option for option in entry.options if f"`{option}" not in words]

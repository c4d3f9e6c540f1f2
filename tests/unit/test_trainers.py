"""The study of trainers: their files, its table, page and figure."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ckptbench.common.errors import ConfigError, RunFolderError
from ckptbench.common.files import read_json
from ckptbench.config.trainers import CHECKS, COLUMNS, COST
from ckptbench.trainers import figure, page, table
from ckptbench.trainers.cell import CANNOT_TELL, NO, YES, run_cell
from ckptbench.trainers.trainer import row_of, rows
from ckptbench_probe.check.questions import QUESTIONS

OWN = Path(__file__).resolve().parents[2] / "trainers"
TRAINER = """
title: My trainer
environment: trainers
packages: [pip]
ranks: 2
command: "torchrun --nproc-per-node {ranks} {script} --folder {folder}"
resume:
epoch: 12
promises:
  resume_within: {text: goes on where it stopped, source: https://example.org}
settings:
  - {title: My trainer with care, command: "torchrun --nproc-per-node {ranks} {script} {folder} --care", checks: [stop]}
"""


def added(folder: Path, name: str = "mine", text: str = TRAINER) -> Path:
    (folder / name).mkdir(parents=True)
    (folder / name / "train.py").touch()
    (folder / name / "trainer.yaml").write_text(text)
    return folder


def line(column: str, verdict: str, **fields: object) -> table.Line:
    given = {"row": "mine", "title": "My trainer", "control": "", "words": "lost", "promise": "", "source": "", "command": "c", "versions": "pip 1", "date": "2026-11-28", "seconds": 1.0, **dict.fromkeys(table.COSTS), **fields}  # fmt: skip
    return table.Line(column=column, verdict=verdict, **given)  # type: ignore[arg-type]


def test_a_folder_is_a_trainer_and_each_of_its_settings_a_row(tmp_path: Path) -> None:
    own, other = rows(added(tmp_path))
    assert (own.name, other.name, other.title) == ("mine", "mine_1", "My trainer with care")
    script = str(tmp_path / "mine" / "train.py")
    assert own.words(own.command) == ["torchrun", "--nproc-per-node", "{ranks}", script, "--folder", "{folder}"]  # fmt: skip
    assert (own.ranks("resume_within"), own.ranks("kill")) == (2, 1)
    assert own.trainer.saves_every == 4
    assert (own.checks, other.checks) == (tuple(CHECKS), ("stop",))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("epoch: 12", "epoch: 12\nepochs: 3", "trainer.yaml: epochs is 3: there is no such field"),
        ("epoch: 12", "epoch: 12\nevery: 5", "let every divide epoch"),
        ("{folder}\"\nresume", "out\"\nresume", "it needs {folder}"),
        ("{script} --folder", "{script} --at {place} --folder", "no {place}"),
        ("resume_within:", "resumes_within:", "resumes_within"),
        ("checks: [stop]", "checks: [stops]", "settings[0].checks[0]"),
        ("title: My trainer\n", "", "title: it is missing"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_refused_with_its_place(
    old: str, new: str, told: str, tmp_path: Path
) -> None:
    assert old in TRAINER
    with pytest.raises(ConfigError) as error:
        rows(added(tmp_path, text=TRAINER.replace(old, new)))
    assert told in str(error.value)
    assert "trainer.yaml" in str(error.value)


def test_a_trainer_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no folder of it"):
        rows(tmp_path)
    added(tmp_path)
    with pytest.raises(ConfigError, match="mine"):
        rows(tmp_path, ["yours"])
    with pytest.raises(ConfigError, match="mine, mine_1"):
        row_of(tmp_path, "yours")
    (tmp_path / "mine" / "train.py").rename(tmp_path / "mine" / "one.py")
    (tmp_path / "mine" / "two.py").touch()
    with pytest.raises(ConfigError, match="2 scripts"):
        rows(tmp_path)


def test_each_check_is_a_question_of_the_probe_or_the_cost() -> None:
    """A check that the probe has learned is a row of CHECKS, and one that it has not is none."""
    asked = [column for columns in CHECKS.values() for column in columns]
    assert sorted(asked) == sorted([*QUESTIONS, COST])
    assert set(asked) <= set(COLUMNS)


def test_every_trainer_of_this_repository_can_be_read() -> None:
    assert rows(OWN)


def test_a_check_that_cannot_start_is_an_answer(tmp_path: Path) -> None:
    row = rows(added(tmp_path / "trainers"))[0]
    output = tmp_path / "found" / "saves.json"
    run_cell(row, "saves", tmp_path / "nowhere", 1.0, output)
    found = read_json(output)
    assert [one["verdict"] for one in found["answers"]] == [CANNOT_TELL, CANNOT_TELL]
    assert "nowhere" in found["answers"][0]["words"]
    lacks = replace(row, trainer=row.trainer.model_copy(update={"packages": ["no-such-package"]}))
    run_cell(lacks, "stop", Path(sys.prefix), 1.0, output)
    assert "has no no-such-package" in read_json(output)["answers"][0]["words"]


def test_the_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = [line("resume_within", NO, words="a, b"), line(COST, "measured", stall_s=0.25)]
    table.write(tmp_path / "trainers.csv", found)
    assert table.read(tmp_path / "trainers.csv") == found
    (tmp_path / "trainers.csv").write_text("other\n1\n")
    with pytest.raises(RunFolderError, match=r"trainers\.csv"):
        table.read(tmp_path / "trainers.csv")


def test_page_and_figure_show_each_answer(tmp_path: Path) -> None:
    """The controls come last. A column that nobody was asked is left out."""
    wrong = {"row": "wrong", "title": "Control: wrong", "control": "wrong: order"}
    found = [
        line("resume_within", NO, **wrong),
        line("resume_within", YES),
        line("pointer", CANNOT_TELL),
        line("stop", NO, promise="saves|ends", source="https://example.org"),
        line(COST, "measured", stall_s=0.25, slowdown_s=-0.1, file_bytes=20.0, state_bytes=10.0, memory_bytes=1e6),
    ]  # fmt: skip
    text = page.document(found)
    heads = f"|trainer|{COLUMNS['resume_within']}|{COLUMNS['stop']}|{COLUMNS['pointer']}|{COLUMNS[COST]}|"
    assert text.startswith(heads)
    assert "|My trainer|✓|**✗**|?|250 ms, 2.0 states|\n|Control: wrong|**✗**||||" in text
    assert "|[saves\\|ends](https://example.org)|My trainer|" in text
    figure.draw(found, tmp_path / "trainers")
    assert (tmp_path / "trainers.png").read_bytes().startswith(b"\x89PNG")
    assert "2026-11-28" in (tmp_path / "trainers.txt").read_text()


def test_verdicts_differ_in_sign_and_in_brightness() -> None:
    """Who sees no colours tells a yes from a no."""

    def brightness(color: str) -> float:
        red, green, blue = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
        return 0.299 * red + 0.587 * green + 0.114 * blue

    signs = figure.SIGNS.values()
    assert len({sign.letter for sign in signs}) == len(signs)
    assert brightness(figure.SIGNS[YES].color) - brightness(figure.SIGNS[NO].color) > 0.3
    assert all(abs(brightness(sign.color) - brightness(sign.ink)) > 0.4 for sign in signs)

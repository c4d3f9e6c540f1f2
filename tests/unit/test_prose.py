"""`make lint` finds misspelt words, and words that a reader has to translate, in pages and in what commands print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts import prose

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("docs/page.md", "The runs are made anew.\n"),
        ("src/one.py", 'raise ValueError(f"{path}: the log does not tell the time")\n'),
        ("src/page.js", "const text = `what ${it} is told by`;\n"),
        ("Makefile", "\techo No failure struck it\n"),
    ],
)
def test_a_word_of_the_dialect_is_found(
    tmp_path: Path, path: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_text(text)
    assert prose.main(tmp_path) == 1
    assert capsys.readouterr().out.startswith(f"{tmp_path / path}:1: ")


def test_names_real_uses_and_docstrings_are_no_findings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "README.md").write_text("The field `told` of held jobs.\n\n### struck\n")
    (tmp_path / "src/one.py").write_text('"""What is told."""\nTOLD = {"told": f"{told} files"}\n')
    assert prose.main(tmp_path) == 0
    assert not capsys.readouterr().out


def test_a_misspelt_word_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("A chekpoint is writen.\n")
    words = [str(Path(sys.executable).with_name("codespell")), "--toml", str(ROOT / "pyproject.toml"), str(page)]  # fmt: skip
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode > 0
    assert "writen ==> written" in done.stdout
